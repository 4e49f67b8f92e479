// The HTTP API.  If the broker requires a token, the page asks for it and keeps it until the tab is closed or signs out.

import { ask, say } from "./dom.js";

const PREFIX = "/api/v1";
const KEPT = "token";
// `asking` is the question for a token, as long as it is open; `declined` says that it was closed without an answer.
let [asking, declined] = [null, false];

// An answer of the broker that says no.
class Refused extends Error {
  constructor(detail) {
    super(detail);
    this.isRefused = true;
  }
}

const token = () => sessionStorage.getItem(KEPT);

function showSignOut() {
  document.getElementById("sign-out").hidden = !token();
}

export const signedOut = () => declined;

export function signOut() {
  sessionStorage.removeItem(KEPT);
  location.reload();
}

export function signIn() {
  location.reload();
}

// Ask for a token; `refused` is the one that the broker did not accept.
async function askForToken(refused) {
  asking ??= ask("Sign in", refused
    ? "The broker does not accept this token: it is unknown, has expired or was revoked. Check that all of it was copied, or make a new one with wakeq token create."
    : "This broker requires a token. wakeq token create makes one.",
  { fields: [{ name: "token", label: "Token", type: "password", required: true }], go: "Sign in", isWrong: Boolean(refused) });
  const given = await asking;
  asking = null;
  if (given) sessionStorage.setItem(KEPT, given.token.trim());
  else {
    sessionStorage.removeItem(KEPT);
    declined = true;
  }
  showSignOut();
  return given !== null;
}

async function request(method, path, { query = {}, body, signal } = {}) {
  if (declined) throw new Refused("You are signed out.");
  const named = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const target = PREFIX + path + (named.length ? `?${new URLSearchParams(named)}` : "");
  const used = token();
  const headers = used ? { Authorization: `Bearer ${used}` } : {};
  const carries = method !== "GET" && method !== "DELETE";
  const response = await fetch(target, {
    method, signal,
    headers: carries ? { ...headers, "Content-Type": "application/json" } : headers,
    body: carries ? JSON.stringify(body ?? {}) : undefined,
  });
  // Another request may have asked meanwhile.
  if (response.status === 401 && (token() !== used || (await askForToken(used)))) return request(method, path, { query, body, signal });
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({ error: { detail: `HTTP ${response.status}` } }));
    throw new Refused(error.detail);
  }
  return response;
}

showSignOut();

export async function call(method, path, query, body) {
  return (await request(method, path, { query, body })).json();
}

// Send one request and show the result; returns false if it failed.
export async function perform(what, method, path, query, body) {
  try {
    const answer = await call(method, path, query, body);
    say(typeof what === "function" ? what(answer) : what);
    return answer;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

// Apply an operation to all selected messages, call after call.
export async function performAll(what, path, queue, body, strangers = new Set()) {
  let [done, more] = [0, {}];
  try {
    do {
      const answer = await call("POST", path, { queue }, { ...body, ...more });
      done += answer.done;
      answer.strangers.forEach((name) => strangers.add(name));
      more = { after: answer.after, through: answer.through };
    } while (more.after);
    say(`${what}: ${done}`);
  } catch (error) {
    say(`${error.message} (${done} done before that)`, true);
  }
  return done;
}

// Read server-sent events until the stream ends; EventSource could not send a token.
export async function watch(query, signal, each) {
  const response = await request("GET", "/events", { query, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) each(JSON.parse(part.slice(6)));
  }
}

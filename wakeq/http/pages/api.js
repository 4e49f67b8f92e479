// The HTTP API.  If the broker requires a token, the page asks for it once and keeps it until the tab is closed.

import { ask, say } from "./dom.js";

const PREFIX = "/api/v1";
let asking = null;

function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function login() {
  asking ??= ask("Token", "This broker requires a token.", { fields: [{ name: "token", label: "Token", type: "password", required: true }], go: "Continue" });
  const given = await asking;
  asking = null;
  if (given) sessionStorage.setItem("token", given.token);
  return given !== null;
}

async function request(method, path, { query = {}, body, signal } = {}) {
  const named = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const target = PREFIX + path + (named.length ? `?${new URLSearchParams(named)}` : "");
  const json = method === "GET" || method === "DELETE" ? {} : { body: JSON.stringify(body ?? {}), headers: headers({ "Content-Type": "application/json" }) };
  const response = await fetch(target, { method, headers: headers(), ...json, signal });
  if (response.status === 401 && (await login())) return request(method, path, { query, body, signal });
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({ error: { detail: `HTTP ${response.status}` } }));
    throw new Error(error.detail);
  }
  return response;
}

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

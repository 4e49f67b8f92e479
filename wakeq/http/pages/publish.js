// The form that publishes a message.

import { call } from "./api.js";
import { ask, h, say, shown } from "./dom.js";
import { live } from "./live.js";
import { addressOf } from "./messages.js";

const number = (text) => (text.trim() === "" ? undefined : Number(text));

// Lines of `name: value` as an object; throws if a line has no colon.
function headersOf(text) {
  return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
    const place = line.indexOf(":");
    if (place < 1) throw new Error(`The header “${line.trim()}” has no value; write name: value, one a line.`);
    return [line.slice(0, place).trim(), line.slice(place + 1).trim()];
  }));
}

// Ask for a message for a queue and publish it; what the broker refuses is asked again, with its words.
export async function publishTo(queue = "") {
  let [given, problem] = [{ queue, body: "", priority: "", delay: "", timeout: "", expires: "", headers: "" }, null];
  const known = (live.reading?.queues ?? []).map((one) => one.name).filter(Boolean);
  for (;;) {
    given = await ask("Publish a message", problem ?? "The broker creates the queue if it does not exist.", {
      isWrong: problem !== null, go: "Publish", fields: [
        { name: "queue", label: "Queue", value: given.queue, suggestions: known, hint: "Empty: the default queue.", autofocus: !given.queue },
        { name: "body", label: "Body", type: "text lines", value: given.body, autofocus: Boolean(given.queue) },
        { name: "priority", label: "Priority", type: "number", step: 1, value: given.priority, placeholder: "0", isShort: true },
        { name: "delay", label: "Delay, seconds", type: "number", min: 0, step: "any", value: given.delay, placeholder: "0", isShort: true },
        { name: "timeout", label: "Lease timeout, seconds", type: "number", min: 5, step: "any", value: given.timeout, placeholder: "as the queue says", isShort: true },
        { name: "expires", label: "Expires after, seconds", type: "number", min: 0, step: "any", value: given.expires, placeholder: "never", isShort: true },
        { name: "headers", label: "Headers", type: "text lines", rows: 2, value: given.headers, hint: "name: value, one a line" }] });
    if (given === null) return;
    try {
      const body = { queue: given.queue, body: given.body, priority: number(given.priority), delay: number(given.delay),
        timeout: number(given.timeout), expires: number(given.expires), headers: headersOf(given.headers) };
      const { uid } = await call("POST", "/messages", {}, body);
      say(["Published ", h("a", { href: addressOf(given.queue, uid) }, uid), ` to ${shown(given.queue)}.`]);
      return;
    } catch (error) {
      problem = error.message;
    }
  }
}

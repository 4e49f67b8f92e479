// A worker in JavaScript: JSON frames over WebSocket, as described in docs/protocols/worker.md.
//
//     npm ci && node worker.js ws://127.0.0.1:8080/connect emails
//
// Send SUB and FET. On `msg`, do the work and send ACK and FET. On `nomsg`, send ISLP and wait. On `awk`, send FET. If the
// handler throws, the message is returned with NACK. If the connection breaks, a new one is opened.

import WebSocket from "ws";

const [address, queue] = process.argv.slice(2);
const AGAIN_AFTER_MS = 1000;

async function handle(message) {
  console.log(`sent ${message.msg}`);
}

function work() {
  const socket = new WebSocket(address);
  const send = (cmd, fields = {}) => socket.send(JSON.stringify({ cmd, qname: queue, ...fields }));

  const replies = {
    msg: async (message) => {
      const { uid, lease } = message;
      try {
        await handle(message);
        send("ACK", { uid, lease });
      } catch (error) {
        send("NACK", { uid, lease, error: String(error) });
      }
      send("FET");
    },
    // With "ready" the broker wakes this worker only when there is a message for it.
    nomsg: () => send("ISLP", { wake: "ready" }),
    awk: () => send("FET"),
    nok: ({ err, detail }) => {
      console.error(`refused: ${err} ${detail ?? ""}`);
      // "close" connects again.
      socket.close();
    },
  };

  socket.on("open", () => {
    send("SUB");
    send("FET");
  });
  socket.on("message", (frame) => {
    const reply = JSON.parse(frame);
    replies[reply.cmd]?.(reply);
  });
  socket.on("error", (error) => console.error(`${address}: ${error.message}`));
  socket.on("close", () => setTimeout(work, AGAIN_AFTER_MS));
}

work();

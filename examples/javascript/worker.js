// A worker in JavaScript: JSON frames over WebSocket, as docs/protocols/worker.md tells.
//
//     npm ci && node worker.js ws://127.0.0.1:8080/connect emails
//
// SUB, FET; work and ACK what comes; on `nomsg` ISLP and wait; on `awk` FET again. A handler that throws gives the
// message back. A connection that breaks is made again.

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
    nomsg: () => send("ISLP", { wake: "ready" }), // not for every message, only when there is one for this worker
    awk: () => send("FET"),
    nok: ({ err, detail }) => {
      console.error(`refused: ${err} ${detail ?? ""}`);
      socket.close(); // and begin again
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

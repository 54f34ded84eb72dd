// The same service as pay.py, as far as paying goes.

import { openSync, closeSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const journal = [];
const gates = new Map();

function gate(name) {
  if (!gates.has(name)) {
    const g = {};
    g.opened = new Promise((resolve) => (g.open = resolve));
    gates.set(name, g);
  }
  return gates.get(name);
}

function mark(path) {
  return join(process.argv[2], path.replaceAll("/", "_"));
}

function begin(path) {
  try {
    closeSync(openSync(mark(path), "wx"));
    return true;
  } catch {
    return false;
  }
}

async function work(url, response) {
  const call = { path: url.pathname, overlaps: !begin(url.pathname) };
  journal.push(call);
  const number = journal.length;
  if (url.searchParams.has("gate")) await gate(url.searchParams.get("gate")).opened;
  await new Promise((resolve) => setTimeout(resolve, Number(url.searchParams.get("ms") ?? 0)));
  if (!call.overlaps) rmSync(mark(url.pathname));
  response.statusCode = Number(url.searchParams.get("status") ?? 200);
  response.end(`paid by node, number ${number}\n`);
}

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const url = new URL(request.url, "http://a.example");
    if (url.pathname === "/journal") {
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify(journal));
    } else if (url.pathname.startsWith("/gate/")) {
      gate(url.pathname.slice("/gate/".length)).open();
      response.end("open");
    } else {
      work(url, response);
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));

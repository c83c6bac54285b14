// Everything that comes from messages is set as text, never as markup.
"use strict";

const at = (id) => document.getElementById(id);

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  if (kind) made.className = kind;
  return made;
}

function table(id, columns, rows) {
  const place = at(id);
  if (rows.length === 0) return place.replaceChildren(element("p", "none"));
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const column of columns) head.append(element("th", column));
  const body = made.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    for (const cell of cells) {
      row.insertCell().append(cell instanceof Node ? cell : element("span", String(cell ?? "")));
    }
  }
  place.replaceChildren(made);
}

async function read(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? answer.statusText);
  return body;
}

const time = (microseconds) => (microseconds == null ? "" : new Date(microseconds / 1000).toISOString());

async function show(key) {
  const place = at("message");
  place.hidden = false;
  try {
    place.textContent = JSON.stringify(await read("/api/parked/" + encodeURIComponent(key)), null, 2);
  } catch (error) {
    place.textContent = String(error);
  }
}

function opener(row) {
  const button = element("button", row.label);
  button.addEventListener("click", () => show(row.key));
  return button;
}

function each(answer, list) {
  return Object.entries(answer.databases).flatMap(([name, found]) =>
    found.error ? [[name, element("span", found.error, "bad")]] : list(name, found));
}

async function refresh() {
  try {
    const status = await read("/api/status");
    const state = !status.live ? "wedged" : status.ready ? "ready" : "not ready";
    at("summary").replaceChildren(element("span", state, state === "ready" ? "good" : "bad"),
      document.createTextNode(" · version " + status.version));
    table("conditions", ["component", "state", "detail"], Object.entries(status.conditions).map(([name, found]) =>
      [name, element("span", found.ready ? "ready" : "down", found.ready ? "good" : "bad"), found.detail]));
    table("routes", ["route", "broker", "source", "group", "database", "plugins", "lanes"], status.routes.map((route) =>
      [route.name, route.broker, route.source, route.group, route.database, route.plugins.join(", "), route.lanes]));
    const outbox = await read("/api/outbox?limit=1");
    table("outbox", ["database", "pending", "refused", "parked"], each(outbox, (name, found) =>
      [[name, found.counts.pending, found.counts.refused, found.counts.parked]]));
    const parked = await read("/api/parked");
    table("parked", ["database", "message", "route", "state", "code", "reason", "attempts", "last attempt", "next"],
      each(parked, (name, found) => found.rows.map((row) => [name, opener(row), row.route, row.state, row.code,
        row.reason, row.attempts, time(row.last_attempt_at), time(row.next_attempt_at)])));
  } catch (error) {
    at("summary").replaceChildren(element("span", "the host does not answer: " + error.message, "bad"));
  } finally {
    setTimeout(refresh, 3000);
  }
}

refresh();

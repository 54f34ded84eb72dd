// Replaces the content of the page with each update. Without this script, the page is read anew by hand.
"use strict";
const find = (id) => document.getElementById(id);
const content = find("content");
const state = find("state");
const pause = find("pause");
const filter = find("q");
const show = (live, text) => {
  state.dataset.live = live;
  state.textContent = text;
};
const parse = (html) => {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
};
const replace = (html) => {
  const focused = document.activeElement?.getAttribute("href"); // a link keeps the focus
  const scrolled = [...content.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  content.replaceChildren(parse(html));
  content.querySelectorAll(".scroll").forEach((box, i) => (box.scrollLeft = scrolled[i] ?? 0));
  if (focused) {
    for (const link of content.querySelectorAll("a")) {
      if (link.getAttribute("href") === focused) link.focus({ preventScroll: true });
    }
  }
};
// An update between press and release would replace the link, and there would be no click. It would
// end a selection, too.
let pressed = false;
let paused = false;
let late = null;
const selects = () => {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(content, true);
};
const update = () => {
  if (late === null) return;
  const told = parse(late).querySelector("time");
  if (paused) show("", "paused");
  else if (selects()) show("", "paused while text is selected");
  else {
    show(told.dataset.state === "live" ? "yes" : "no", told.dataset.state);
    if (!pressed) {
      replace(late);
      late = null;
    }
  }
};
addEventListener("pointerdown", () => {
  pressed = true;
});
const release = () =>
  setTimeout(() => {
    pressed = false;
    update();
  });
addEventListener("pointerup", release);
addEventListener("pointercancel", release);
document.addEventListener("selectionchange", update);
pause.hidden = false;
find("reload").hidden = true;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  if (paused) show("", "paused");
  else update();
});
let source;
const listen = () => {
  source?.close();
  source = new EventSource("events" + location.search);
  source.onmessage = (event) => {
    late = event.data;
    update();
  };
  source.onerror = () => show("no", "connection lost, retrying");
};
// What an unlock has done is said once. A reload does not say it again.
const search = () => (filter.value ? "?" + new URLSearchParams({ q: filter.value }) : "");
const locate = () => history.replaceState(null, "", location.pathname + search());
let typing;
const apply = (event) => {
  event.preventDefault();
  clearTimeout(typing);
  typing = setTimeout(() => {
    locate();
    listen();
  }, 200);
};
filter.addEventListener("input", apply);
find("filter").addEventListener("submit", apply);
locate();
listen();

// Replaces the content of the page with each update. Without this script, the page is read anew by hand.
"use strict";
const content = document.getElementById("content");
const state = document.getElementById("state");
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
  content.replaceChildren(parse(html));
  if (focused) {
    for (const link of content.querySelectorAll("a")) {
      if (link.getAttribute("href") === focused) link.focus({ preventScroll: true });
    }
  }
};
// An update between press and release would replace the link, and there would be no click.
let pressed = false;
let late = null;
addEventListener("pointerdown", () => {
  pressed = true;
});
const release = () =>
  setTimeout(() => {
    pressed = false;
    if (late !== null) replace(late);
    late = null;
  });
addEventListener("pointerup", release);
addEventListener("pointercancel", release);
const source = new EventSource("events");
source.onmessage = (event) => {
  show("yes", "live");
  if (pressed) late = event.data;
  else replace(event.data);
};
source.onerror = () => show("no", "connection lost, retrying");

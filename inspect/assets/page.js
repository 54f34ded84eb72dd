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
const source = new EventSource("events");
source.onmessage = (event) => {
  show("yes", "live");
  const focused = document.activeElement?.getAttribute("href"); // a link keeps the focus
  content.replaceChildren(parse(event.data));
  if (focused) {
    for (const link of content.querySelectorAll("a")) {
      if (link.getAttribute("href") === focused) link.focus({ preventScroll: true });
    }
  }
};
source.onerror = () => show("no", "connection lost, retrying");

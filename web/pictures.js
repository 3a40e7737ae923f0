// Pictures of a question: taken from files that are dropped or pasted, shown as small canvases. They are kept as data: URLs;
// a canvas shows them without the page loading anything.
import {el, fill, toast} from "./dom.js";

const MOST_BYTES = 20 * 1024 * 1024;
const MOST_PICTURES = 8;
const SIDE = 160;  // of a small canvas
const KINDS = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]+$/;

export const isPicture = (value) => typeof value === "string" && KINDS.test(value);

function asUrl(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => resolve("");
    reader.readAsDataURL(file);
  });
}

function bytesOf(url) {
  const text = atob(url.slice(url.indexOf(",") + 1));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

export function pictureBox(url) {
  const canvas = el("canvas", {class: "picture", width: SIDE, height: SIDE, role: "img", "aria-label": "Picture"});
  createImageBitmap(new Blob([bytesOf(url)])).then((bitmap) => {
    const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
  }, () => canvas.setAttribute("aria-label", "Picture that this browser cannot show"));
  return canvas;
}

// The pictures that the next question will have, in a row of their own.
export class PendingPictures {
  constructor(row) {
    this.row = row;
    this.urls = [];
  }

  async add(files) {
    for (const file of files) {
      if (!file.type.startsWith("image/")) continue;
      if (this.urls.length >= MOST_PICTURES) return toast(`A question has at most ${MOST_PICTURES} pictures`, "error");
      if (file.size > MOST_BYTES) {
        toast(`${file.name || "The picture"} is larger than 20 MB`, "error");
        continue;
      }
      const url = await asUrl(file);
      if (isPicture(url))
        this.urls.push(url);
      else
        toast("Pictures are PNG, JPEG, WebP or GIF", "error");
    }
    return this.draw();
  }

  take() {
    const taken = this.urls;
    this.urls = [];
    this.draw();
    return taken;
  }

  draw() {
    this.row.hidden = this.urls.length === 0;
    fill(this.row, this.urls.map((url, at) => el(
      "button", {type: "button", class: "pending-picture", title: "Remove", "aria-label": "Remove picture",
        onclick: () => { this.urls.splice(at, 1); this.draw(); }}, pictureBox(url))));
  }
}

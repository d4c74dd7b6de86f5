/* Search where the site is read as files: there a browser starts no Worker. An iframe runs the same script instead, and what
   one side posts is an event of the other. */
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #started;

    constructor(url) {
      super();
      this.#started = this.#start(url);
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data });
      this.#started = this.#started.then(() => this.#frame.contentWindow.dispatchEvent(message));
    }

    async #start(url) {
      const loaded = new Promise((resolve) => this.#frame.addEventListener("load", resolve));
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html>";
      document.body.append(this.#frame);
      await loaded;
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const one of urls) await loadScript(inside.document, new URL(one, url));
      };
      await loadScript(inside.document, url);
    }
  };
}

function loadScript(document, url) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    script.src = url;
    document.body.append(script);
  });
}

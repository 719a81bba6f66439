// Search on pages opened from disk. A browser starts no worker from file://, so a hidden frame
// plays it. Pages from a server use the browser's own workers. Nothing is fetched from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => setTimeout(() => this.tell("message", data));
      const script = this.inside.document.createElement("script");
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.tell("error");
      script.src = new URL(url, location.href).href;
      this.inside.document.body.append(script);
    }
    tell(kind, data) {
      const event = new MessageEvent(kind, { data, cancelable: true });
      this["on" + kind]?.(event);
      this.dispatchEvent(event);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else if (this.inside) {
        const event = new this.inside.MessageEvent("message", { data: structuredClone(data) });
        setTimeout(() => this.inside?.dispatchEvent(event));
      }
    }
    terminate() {
      this.frame.remove();
      this.waiting = this.inside = null;
    }
  };
}

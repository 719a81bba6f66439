// A name in a legend hides and shows its line in every plot.
document.querySelectorAll("button[data-shows]").forEach((button) => {
  button.addEventListener("click", () => {
    const line = button.dataset.shows;
    const on = button.getAttribute("aria-pressed") !== "true";
    document.querySelectorAll(`button[data-shows="${line}"]`).forEach((other) => other.setAttribute("aria-pressed", on));
    document.querySelectorAll(`[data-line="${line}"]`).forEach((drawn) => drawn.classList.toggle("off", !on));
  });
});

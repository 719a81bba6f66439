// A table that scrolls sideways fades at the side where there is more, and can be reached by keyboard.
{
  const edges = (box) => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("before", box.scrollLeft > 1);
    box.classList.toggle("after", hidden - box.scrollLeft > 1);
    if (hidden > 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const watch = new ResizeObserver((seen) => seen.forEach((one) => edges(one.target)));
  document.querySelectorAll(".scroll").forEach((box) => {
    watch.observe(box);
    box.addEventListener("scroll", () => edges(box), { passive: true });
  });
}

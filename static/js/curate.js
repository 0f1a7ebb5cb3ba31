// For curators: a link to the curation of the tag under the pointer or with the focus. One link, moved from tag to tag.
const base = document.querySelector("script[data-curate]").dataset.curate;
const made = document.createElement("a");
made.className = "curate-tag curate";
function offer(tag) {
  const name = tag.textContent.trim();
  made.href = `${base}?${new URLSearchParams({ kind: "tag", name })}`;
  made.title = `Curate the tag ${name}`;
  made.setAttribute("aria-label", made.title);
  if (made.previousElementSibling !== tag) tag.after(made);
  made.style.left = `${tag.offsetLeft + tag.offsetWidth - 8}px`;
  made.style.top = `${tag.offsetTop - 8}px`;
}
const tagOf = (target) => target.closest?.(".tags > a:not(.curate-tag)");
document.addEventListener("pointerover", ({ target, pointerType }) => {
  const tag = pointerType === "mouse" && tagOf(target);
  if (tag) offer(tag);
  else if (!target.closest?.(".tags") && document.activeElement !== made) made.remove();
});
document.addEventListener("focusin", ({ target }) => {
  const tag = tagOf(target);
  if (tag) offer(tag);
  else if (target !== made) made.remove();
});

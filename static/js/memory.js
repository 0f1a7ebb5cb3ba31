// A memory on a page or in the panel, keys and texts for agents: copies them, and asks before typed text is left behind.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const status = document.getElementById("status");
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("done");
    status.textContent = button.dataset.copy.length > 40 ? "Copied" : `${button.dataset.copy} copied`;
    setTimeout(() => {
      button.classList.remove("done");
      status.textContent = "";
    }, 1500);
  } catch {
    // Copying is not allowed: select the text, so that the reader can copy it.
    const { parentElement } = button;
    const field = parentElement.querySelector("input");
    if (field) field.select();
    else getSelection().selectAllChildren(parentElement.querySelector("code") ?? document.getElementById("memory-id"));
  }
});

// A form that opens in place takes the focus.
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (target.open && target.matches?.(".edit-fact, .act, .save-view"))
      target.querySelector(".adding, input[type=text]")?.focus();
  },
  true,
);

// A form that was refused still has what was typed in it.
const changed = new WeakSet();
document.addEventListener("input", ({ target }) => {
  const form = target.closest?.("form[data-unsaved]");
  if (form) changed.add(form);
});
document.addEventListener("submit", ({ target }) => changed.delete(target));
window.addEventListener("beforeunload", (event) => {
  if ([...document.querySelectorAll("form[data-unsaved]")].some((form) => changed.has(form))) event.preventDefault();
});

// The page of a memory: copies its id.
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const status = document.getElementById("status");
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("done");
    status.textContent = `${button.dataset.copy} copied`;
    setTimeout(() => { button.classList.remove("done"); status.textContent = ""; }, 1500);
  } catch {
    // Copying is not allowed: select the id, so that the reader can copy it.
    getSelection().selectAllChildren(document.getElementById("memory-id"));
  }
});

// Runs before the page is drawn: marks that scripts run, and sets the theme. It stores the theme and the time zone in
// cookies, so that the server renders both correctly the first time.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  const read = (name) =>
    document.cookie
      .split("; ")
      .find((pair) => pair.startsWith(`${name}=`))
      ?.slice(name.length + 1);
  const keep = (name, value) => {
    const age = value ? 31536000 : 0;
    document.cookie = `${name}=${value}; path=/; max-age=${age}; samesite=lax`;
  };

  // The pages of the admin are rendered without it.
  const chosen = read("theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  // After the first paint: the first look at the time zone takes a browser as long as many a page.
  addEventListener("load", () => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!zone || read("timezone") === zone) return;
    keep("timezone", zone);
    // The page was rendered for another time zone.
    if (zone !== "UTC") document.dispatchEvent(new Event("zone-changed"));
  });

  const names = { "": "System", light: "Light", dark: "Dark" };
  const show = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    const button = document.querySelector("[data-theme-switch]");
    if (!button) return;
    const name = button.querySelector("[data-theme-name]");
    if (name) name.textContent = names[theme];
    else button.setAttribute("aria-label", (button.title = `Theme: ${names[theme]}`));
  };

  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-theme-switch]")) return;
    const order = ["", "light", "dark"];
    const next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
    keep("theme", next);
    show(next);
  });
  document.addEventListener("DOMContentLoaded", () => {
    show(root.dataset.theme ?? "");
    // Nobody is signed in: the recent searches of whoever was are not for the next person. A pop-up has no header.
    const header = document.querySelector("header");
    if (header && !header.querySelector(".person")) localStorage.removeItem("recent-searches");
  });
  document.addEventListener("htmx:historyRestore", () => show(root.dataset.theme ?? ""));
})();

// Runs before the first paint, so that a chosen theme does not flash: "light", "dark", or absent to follow the system.
try {
  const chosen = localStorage.getItem("sluice.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage can be forbidden; the system's theme holds then.
}

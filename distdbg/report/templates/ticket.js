"use strict";
// Copies the text for a ticket; where the browser does not allow that, the text is left selected.
const ticket = document.getElementById("ticket"), button = document.getElementById("copy-ticket");
button.hidden = false;
button.addEventListener("click", async () => {
  ticket.closest("details").open = true;
  getSelection().selectAllChildren(ticket);
  let copied = document.execCommand("copy");
  try {
    await navigator.clipboard.writeText(ticket.textContent);
    copied = true;
  } catch { /* no clipboard for this page */ }
  button.textContent = copied ? "Copied" : "Selected: press Ctrl+C";
});

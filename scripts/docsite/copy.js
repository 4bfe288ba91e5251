"use strict";
// Adds a button to each block of code, which copies its text. Of terminal output it copies the commands, without prompts.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const pre = block.querySelector("pre");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const lines = pre.textContent.split("\n");
      const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
      const text = (commands.length > 0 ? commands : lines).join("\n").trimEnd() + "\n";
      try {
        await navigator.clipboard.writeText(text);
      } catch { // no permission, or not a secure page
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});

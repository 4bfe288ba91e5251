package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// Dimensions of the terminal in pixels.
const (
	rowHeight = 19
	charWidth = 8.2
	margin    = 16
	headRoom  = 34 // space above the first row
)

// drawTerminal draws a terminal in which the lines appear at their times. Without animations, all lines are visible.
func drawTerminal(lines []line) []byte {
	const prompt = "$ muster demo --keep"
	columns := len(prompt)
	for _, l := range lines {
		columns = max(columns, len([]rune(l.text)))
	}
	width, height := int(charWidth*float64(columns))+2*margin, rowHeight*(len(lines)+1)+headRoom+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="Output of muster demo">
<style>
text { font: 13.6px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e4e8ee; white-space: pre; }
.prompt { fill: #7db2ff; font-weight: 600; }
.progress { fill: #9aa7b8; }
.done { fill: #5fcf8d; }
@keyframes show { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: no-preference) { .late { animation: show .2s both; } }
</style>
<rect width="%[1]d" height="%[2]d" rx="8" fill="#12161c"/>
<circle cx="20" cy="17" r="5" fill="#ff8a8a"/><circle cx="38" cy="17" r="5" fill="#f0b64a"/><circle cx="56" cy="17" r="5" fill="#5fcf8d"/>
<text class="prompt" x="%[3]d" y="%[4]d">%[5]s</text>
`, width, height, margin, headRoom+rowHeight, prompt)
	for i, l := range lines {
		class := ""
		switch {
		case strings.HasPrefix(l.text, "[PROGRESS]"):
			class = " progress"
		case strings.HasPrefix(l.text, "[DONE]"):
			class = " done"
		}
		fmt.Fprintf(&b, "<text class=\"late%s\" style=\"animation-delay: %.1fs\" x=\"%d\" y=\"%d\" xml:space=\"preserve\">%s</text>\n",
			class, l.after.Seconds(), margin, headRoom+rowHeight*(i+2), html.EscapeString(l.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

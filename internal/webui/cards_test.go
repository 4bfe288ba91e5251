package webui

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// The cells of a table with a head get the titles of their columns, also cells that depend on conditions. Other tables are unchanged.
func TestCellsHaveTitles(t *testing.T) {
	t.Parallel()
	const fields = `<table class="fields"><tbody><tr><th scope="row">A</th><td>1</td></tr></tbody></table><table><tbody><tr><td>1</td></tr></tbody></table>`
	for text, want := range map[string]string{
		`<table>
<thead><tr>{{if .}}<th scope="col" class="tight"><input data-all><span>Select</span></th>{{end}}<th scope="col">Task</th><th scope="col" class="n">Failed</th></tr></thead>
<tbody>{{range .}}<tr id="a">{{if .}}<td><input></td>{{end}}<td>{{.}}</td><td class="n{{if .}} bad{{end}}">1</td></tr><tr><td colspan="3"></td></tr>{{end}}</tbody></table>` + fields: `<table class="cards">
<thead><tr>{{if .}}<th scope="col" class="tight"><input data-all><span>Select</span></th>{{end}}<th scope="col">Task</th><th scope="col" class="n">Failed</th></tr></thead>
<tbody>{{range .}}<tr id="a">{{if .}}<td data-title="Select"><input></td>{{end}}<td data-title="Task">{{.}}</td><td data-title="Failed" class="n{{if .}} bad{{end}}">1</td></tr><tr><td colspan="3"></td></tr>{{end}}</tbody></table>` + fields,
		`<table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr>{{if .}}<td>1</td>{{else}}<td colspan="1">–</td>{{end}}<td>2</td></tr></tbody></table>`: `<table class="cards"><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr>{{if .}}<td data-title="A">1</td>{{else}}<td colspan="1">–</td>{{end}}<td data-title="B">2</td></tr></tbody></table>`,
	} {
		got, err := fs.ReadFile(templates{fstest.MapFS{"a.html": {Data: []byte(text)}}}, "a.html")
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a row with more cells than columns is accepted")
		}
	}()
	cards(`<table><thead><tr><th>A</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>`)
}

package extract

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/definition"
)

// The recipes of the README extract the documented values.
func TestReadmeRecipesExtractTheirExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	testutil.Ok(t, err)
	_, recipes, _ := strings.Cut(string(readme), "## Recipes\n")
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(recipes)
	if m == nil {
		t.Fatal("no YAML under Recipes in README.md")
	}
	def, err := definition.Parse("README.md", []byte(m[1]))
	testutil.Ok(t, err)
	for text, want := range map[string]string{
		"Floor: 4-ти от 8": `{"floor":4,"floors":8}`, "Floor: 3rd floor of 5": `{"floor":3,"floors":5}`, "Floor: Ground floor / 4": `{"floor":0,"floors":4}`,
		"Floor: basement": `{"floor":-1}`, "Floor: -2": `{"floor":-2}`, "Floor: high up": `{}`,
		"Built: 令和元年5月1日": `{"built":"2019-05-01"}`, "Built: 令和8年5月3日": `{"built":"2026-05-03"}`, "Built: 平成31年4月30日": `{"built":"2019-04-30"}`, "Built: 昭和64年1月7日": `{}`,
		"Added: 3 พฤษภาคม 2569": `{"added":"2026-05-03"}`, "Added: 3 พฤษภาคม 2567": `{}`,
	} {
		res, err := Run(def, page(t, def, definition.KindDetail, "http://flats.example/1", "<dl><dt>"+strings.Replace(text, ": ", "<dd>", 1)+"</dl>"))
		if err != nil || len(res.Records) != 1 {
			t.Errorf("%s: got %d records, %v, want 1", text, len(res.Records), err)
			continue
		}
		got, err := json.Marshal(object(res.Records[0].Fields))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

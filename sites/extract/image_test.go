package extract

import "testing"

func TestLargestImageOfSrcsetIsSelected(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"a.jpg 1x, b.jpg 2x":                       "b.jpg",
		"a.jpg 300w 200h, b.jpg 900w 600h":         "b.jpg",
		"a.jpg 900w 50h, b.jpg 300w 700h":          "a.jpg",
		"a,b.jpg, c.jpg 1.5x":                      "c.jpg",
		"/t_w100,h50.jpg 100w,/t_w200,h90.jpg 20w": "/t_w100,h50.jpg",
		"a.jpg 10q, b.jpg":                         "b.jpg",
		"a.jpg 10q":                                "",
		"data:image/gif;base64,R0lG 1x, b.jpg 2x":  "b.jpg",
		" , a.jpg ,":                               "a.jpg",
		"":                                         "",
	} {
		if got := largest(set); got != want {
			t.Errorf("%q: got %q, want %q", set, got, want)
		}
	}
}

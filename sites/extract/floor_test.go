package extract

import "testing"

func TestFloor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Floor{
		"4-ти от 8": {4, 8}, "5-ти ет. от 5": {5, 5}, "ет. 3 от 5": {3, 5}, "Етаж: 6": {6, 0}, "Партер": {0, 0}, "Партер от 5": {0, 5}, "сутерен": {-1, 0}, "3/9 этаж": {3, 9}, "3 этаж из 9": {3, 9}, "2-ри": {2, 0},
		"floor 3 of 5": {3, 5}, "3rd floor of 5": {3, 5}, "3rd floor": {3, 0}, "Ground floor": {0, 0}, "basement": {-1, 0}, "3/5": {3, 5}, "3 / 5": {3, 5}, "2. OG": {2, 0}, "EG": {0, 0}, "Erdgeschoss von 4": {0, 4}, "2e étage": {2, 0}, "Rez-de-chaussée": {0, 0}, "3 piętro z 4": {3, 4}, "-1": {-1, 0}, "5階 / 10階建": {5, 10}, "10階建の5階": {5, 10}, "3楼/共18楼": {3, 18}, "地下1階": {-1, 0},
	} {
		if got, err := ParseFloor(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	if got, err := ParseFloor("high up"); err == nil {
		t.Errorf("got %+v, want an error", got)
	}
}

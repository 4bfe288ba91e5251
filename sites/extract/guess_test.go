package extract

import (
	"strings"
	"testing"
)

// Pages that say nothing of their charset, in the words of a shop or an office.
func TestGuess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, charsets string }{
		{"The owner’s café sells “crème brûlée” — it’s £4.50", "windows-1252"},
		{"© 2024 Lamps & more » all that’s bright", "windows-1252"},
		{"Für größere Mengen räumen wir natürlich Rabatte ein; die Lieferung erfolgt über Köln", "windows-1252"},
		{"Les élèves ont reçu leurs diplômes à la fête de l’école, où le maire était présent", "windows-1252"},
		{"El niño comió más jamón según la tradición española, ¿verdad? También bebió café", "windows-1252"},
		{"As crianças não estão em casa; amanhã haverá uma reunião sobre a educação e o almoço", "windows-1252"},
		{"La città è più bella perché c’è il sole; però domani pioverà e farà freddo", "windows-1252"},
		{"Smörgåsen är på bordet och kaffet står på spisen. Vi möts vid ån när det blir mörkt", "windows-1252"},
		{"På øen købte vi æbler og røde rødbeder, og bagefter gik vi en tur på den lange strand", "windows-1252"},
		{"Hægt er að fá upplýsingar um verð og þjónustu í síma, það kostar ekkert fyrir þig", "windows-1252"},
		{"Zażółć gęślą jaźń. Proszę wybrać ilość i złożyć zamówienie, wysyłka następnego dnia", "windows-1250 iso-8859-2"},
		{"Příliš žluťoučký kůň úpěl ďábelské ódy. Zboží můžete vrátit do čtrnácti dnů", "windows-1250 iso-8859-2"},
		{"A megrendelt könyvet két héten belül küldjük, a fizetés történhet bankkártyával, bővebben később", "windows-1250 iso-8859-2"},
		{"Kargo ücretsiz, sipariş için lütfen giriş yapınız. Ödeme kapıda, iade koşulları aşağıda", "windows-1254"},
		{"Prekių grąžinimas galimas per keturiolika dienų, mokėjimas banko kortele arba grynaisiais, ačiū", "windows-1257"},
		{russian, "windows-1251 koi8-r ibm866 iso-8859-5"},
		{"Доставка по всій Україні, її вартість залежить від ваги і відстані до вашого міста", "windows-1251 koi8-u"},
		{"Безплатна доставка за цялата страна, плащането е при получаване на пратката", "windows-1251"},
		{"Η παράδοση γίνεται δωρεάν σε όλη τη χώρα και η πληρωμή με κάρτα ή αντικαταβολή", "windows-1253 iso-8859-7"},
		{"המשלוח חינם לכל הארץ והתשלום בכרטיס אשראי או במזומן בעת קבלת החבילה", "windows-1255"},
		{"التوصيل مجاني إلى جميع أنحاء البلاد والدفع بالبطاقة أو نقدا عند الاستلام", "windows-1256"},
		{"จัดส่งฟรีทั่วประเทศ ชำระเงินด้วยบัตรเครดิตหรือเก็บเงินปลายทาง", "windows-874"},
		{japanese, "shift_jis euc-jp iso-2022-jp"},
		{chinese, "gb18030"},
		{"我們的網站有一個新的產品，這是他們說的，你可以在這裡看到。", "big5"},
		{"전국 무료 배송이며 결제는 카드로 하실 수 있습니다. 자세한 내용은 아래를 보십시오.", "euc-kr"},
	} {
		for charset := range strings.FieldsSeq(c.charsets) {
			body := append([]byte("<html><head><title>shop</title></head><body class=main><p>"), encode(t, charset, c.text)...)
			body = append(body, "</p><a href=/cart>Cart</a></body></html>"...)
			got, how := Decode(body, "text/html", "")
			if how.From != "guess" || !strings.Contains(string(got), c.text) {
				t.Errorf("%s: got %q by %+v, want %q", charset, clip(string(got)), how, c.text)
			}
		}
	}
}

// The language that a page gives for its own helps where a few letters leave
// it open.
func TestGuessByLanguage(t *testing.T) {
	t.Parallel()
	body := append([]byte("<html lang='pl-PL'><p>"), encode(t, "iso-8859-2", "Łódź: ąę")...)
	if got, how := Decode(body, "", ""); !strings.Contains(string(got), "Łódź: ąę") {
		t.Errorf("got %q by %+v", got, how)
	}
}

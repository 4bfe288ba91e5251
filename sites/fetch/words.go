package fetch

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// notion is a set of things that words can be about.
type notion uint32

// The notions that refusals are made of.
const (
	ofAccess  notion = 1 << iota // what is refused: access, a request, an address, a network, a browser
	ofDeny                       // that it is refused, limited, over
	ofHuman                      // a human, a robot, what tells them apart
	ofVerify                     // checking and proving
	ofUnusual                    // too much, too fast, suspicious
	ofWait                       // waiting, trying again
	ofTrace                      // numbers, addresses and people to turn to about it
	ofYou                        // the reader
	ofNone                       // not
	ofPlace                      // a country
	ofTunnel                     // a VPN, a proxy
	ofScript                     // JavaScript, cookies, what must be on or off
	ofQueue                      // a line to stand in
	ofLogin                      // having to sign in
	ofConsent                    // cookies, partners, choices
	ofFailure                    // nothing but: an error
	ofGoing                      // going on
)

// lexicon holds the words of each notion, in the languages of the web's larger
// sites; a line for a language or for those that share their stems. A word
// stands for all that begin with it, one that ends in $ for itself. Those of
// scripts that do not set words apart, or put particles before them, may stand
// anywhere.
var lexicon = map[notion]string{
	ofAccess: `access, request, ip$, ips$, ip-, network, browser, browsing, connection, traffic, query, queries, activit, behavio, url$, this site, this page, this website, this web site, this web page, our site, our website, our systems, attempt, this content, this server, this service, the site, the page, web page, web site, user-agent, user agent, rate limit, device, security check, feature, download
		zugriff, zugang, anfrage, abfrage, aufruf, aufgerufen, netzwerk, verbindung, datenverkehr, aktivität, besucher, diese seite, unsere seite, auf unsere, inhalt, url
		accès, accéder, requête, adresse ip, réseau, navigateur, connexion, trafic, activité, tentative, demande, ce site, cette page, comportement, contenu, visiteur
		acceso, acceder, solicitud, petici, red$, navegador, conexión, tráfico, actividad, intentos, este sitio, esta página, comportamiento
		acesso, acessar, requisiç, solicitaç, rede$, conexão, tráfego, atividade, comportamento, tentativas, pedidos
		accesso, accedere, richiest, rete$, connessione, traffico, attività, tentativi, questo sito
		toegang, verzoek, netwerk, verbinding, verkeer, activiteit, aanvra
		dostęp, żąda, sieci, sieć, przeglądar, połączeni, ruch, aktywno, zapyta, adresu ip
		přístup, prístup, požadav, požiadav, sítě, síť, sieť, prohlížeč, prehliadač, provoz, aktivit
		hozzáfér, kérés, hálózat, böngésző, forgalom, tevékenység
		cerer, accesul, rețea, retea, rețeaua, trafic, activitate
		åtkomst, adgang, tilgang, förfråg, forespørg, forespørs, nätverk, netværk, nettverk, trafik, webbläsare, besök
		pääsy, käyttö, pyyn, verkko, liiken, yhtey
		erişim, istek, isteğ, ağınız, ağdan, tarayıcı, bağlant, etkinlik, giriş
		πρόσβαση, αίτημα, αιτήμα, δίκτυο, κίνηση, περιηγητ
		доступ, достъп, запрос, запит, заявк, захтев, сети, сеть, сетью, мереж, мреж, браузер, браузър, трафик, трафік, активност, активніст, приступ, попыт, подключ, действия, устройств
		وصول, طلب, شبكت, الشبكة, حركة المرور, نشاط, متصفح, دسترسی, درخواست
		גישה, בקש, רשת, תעבור, פעילות
		การเข้าถึง, คำขอ, เครือข่าย
		truy cập, yêu cầu, mạng$, lưu lượng, hoạt động
		akses, permintaan, jaringan, aktivitas, lalu lintas
		访问, 请求, 請求, 网络, 網路, 流量, 環境, 环境, 訪問, 存取, 操作, 提交, 出口, 查询, 搜索, 浏览器
		アクセス, リクエスト, ネットワーク, トラフィック, ブラウザ, 通信
		접근, 접속, 액세스, 요청, 네트워크, 트래픽, 이용, 브라우저
		juurdepääs, päring, prieig, priėj, užklaus, pieeja, piekļuve, pieprasījum, dostop, zahtev, pristup, accés, sol·licitud, tillträde, giriş
		पहुँच, पहुंच, अनुरोध
		this board, this forum, this store, our store, online store, this resource, requested resource
		zahtjev, mrež, preglednik, aktivnost, omrež, brskalnik, ligipääs, võrgu, brauser, liiklus, tīkl, pārlūk, tinkl, naršykl, sraut, qasj, kërkes, rrjet, versoek, capaian, rangkaian, xarxa, trànsit, aðgang, beiðni, sorğu, şəbəkə, brauzer, қолжетімділік, сұрау, желі
		մուտք, հարցում, ցանց, წვდომა, მოთხოვნ, ქსელ, ბრაუზერ, एक्सेस, नेटवर्क, ब्राउज़र, ट्रैफ़िक, ट्रैफिक, गतिविधि, অ্যাক্সেস, অনুরোধ, নেটওয়ার্ক, رسائی, شبکه, مرورگر, ترافیک, דפדפן
		security screening, проверка безопасности, перевірка безпеки, sicherheitsüberprüfung, sicherheitsprüfung, vérification de sécurité, contrôle de sécurité, comprobación de seguridad, verificación de seguridad, control de seguridad, verificação de segurança, controllo di sicurezza, beveiligingscontrole, kontrola bezpieczeństwa, bezpečnostní kontrol, güvenlik kontrol, güvenlik doğrulama, з'єднан, підключенн, безопасно, соединени, саобраћај, anschluss, nutzung, sarbide, eskaera, conexión, 安全检查, 安全检测, 安全验证, 安全驗證, セキュリティ, 보안 확인, 보안 검사
		trình duyệt, trang web, dotaz, пристап, 接続, 시스템, bandwidth, referer, consultas
		your address, ihrer adresse, deiner adresse, ihrem anschluss, votre adresse, su dirección, tu dirección, tu conexión, seu endereço, tuo indirizzo, suo indirizzo, jouw adres, uw adres, twojego adresu, vaší adresy, вашего адреса, вашої адреси, вашия адрес, вашата мрежа, adresinizden, adresiniz, διεύθυνσή σας, din adress, din adresse, osoitteestasi, suchanfragen, anrop, הכתובת שלך, פניות, портал, ιστότοπ`,
	ofDeny: `denied, deny, blocked, blocking, block reason, block details, unblock, banned, forbid, refused, rejected, restrict, not allowed, not permitted, not authorized, not authorised, been limited, are limited, is limited, temporarily limited, suspended, paused, throttl, prohibit, blacklist, flagged, not fulfill, not fulfil, cannot be processed, not be processed, not be satisfied, unable to, cannot be displayed, can't be displayed, limiting, aborted, permission to, declin, locked out, lockout, exceed, limit reached, limit$, rate limited, rate-limited, ratelimited, intercept, interrupt, terminated, disabled for, not satisfied, unsuccessful, unauthorized, unauthorised, prevent, unavailable, not available, not accessible, limit exceeded
		gesperrt, blockiert, verweiger, abgelehnt, verboten, eingeschränkt, untersagt, nicht erlaubt, nicht gestattet, keinen zugriff, überschritten, zugriffsbeschränkung, unterbrech
		refus, bloqu, interdit, restrei, restric, limité, limiter, rejet, suspendu, dépass, non autoris, pas autoris, abgewiesen
		deneg, bloque, rechaz, restring, prohibid, limitad, suspendid, superado, no está permitid, no permitid, interrupci, no autorizad
		negad, recusad, rejeitad, restrit, proibid, suspens, excedid, excedeu
		negat, blocc, rifiutat, limitat, vietat, sospes, respint, interruzione
		geweigerd, geblokkeerd, beperkt, verboden, afgewezen, ontzegd
		odmow, odmów, zablokowa, blokad, zabronion, ogranicz, odrzucon, przekroczon
		odepřen, zamítnut, odmítnut, zablokov, blokov, zakázán, omezen, zamietnut, odmietnut, zakázan, obmedzen, překroč
		megtagad, letilt, blokkol, elutasít, korlátoz, tilt
		interzis, împiedic, respins, blocat, refuzat, restricț
		nekad, blocker, spärra, begräns, nægtet, bloker, afvist, nektet, blokker, avvist
		estet, evätty, kiellet, rajoite
		engellen, reddedil, yasak, kısıtla, sınırlan, aşıl, aştınız
		απορρίφ, απαγορ, αποκλε, δεν επιτρέπεται, περιορισ, αρνή, μή επιτρεπτ, δεν έχετε
		заблокирован, блокиран, заблокован, блокиров, запрещ, запрет, забранен, заборонен, отказан, отклон, відхилен, відмовлен, огранич, обмежен, превыш, превысил, перевищ, недоступ, закрыт, одбијен, забрањен, онемогућен
		رفض, حظر, محظور, ممنوع, تقييد, مقيد, محدود, مسدود, غیرمجاز, بیش از حد
		נחסמ, חסומ, נדחת, נדחה, הוגבל, אסור
		ถูกปฏิเสธ, ปฏิเสธ, บล็อก, ระงับ, จำกัด
		bị chặn, từ chối, bị cấm, hạn chế, bị khóa
		ditolak, diblokir, disekat, dilarang, dibatasi, dihalang, dinafikan
		拒绝, 拒絕, 阻断, 阻斷, 拦截, 攔截, 禁止, 限制, 封禁, 受限, 屏蔽, 封鎖, 封锁, 被拒, 黑名单
		拒否, 制限, ブロック, 遮断, 表示できません, 許可されて
		차단, 거부, 제한, 금지
		keelatud, blokeerit, draudžiam, užblokuot, liegta, bloķēt, zavrnjen, zavrn, blokiran, zabranjen, nije dozvoljen, odbijen, no autoritz, bloquejat, denegat, qadağan, bloklan, رد شد, 거절, tillträde nekas, nekas
		अवरुद्ध, अस्वीकृत
		blocklist, black list, block list, disallow, barred, not welcome, may not view, may not access, may not use, been listed
		blokir, zabranj, uskraćen, ograničen, blokeer, piirat, bllok, ndalu, refuz, ierobež, užblok, uždraus, aprib, geweier, geblokkeer, bloquej, restringit, hafnað, bannað, məhdud, rədd, бұғатт, тыйым, шектел
		արգելափակ, մերժ, սահմանափակ, დაბლოკ, შეზღუდ, აკრძალ, ब्लॉक, प्रतिबंध, अस्वीकार, ব্লক, নিষিদ্ধ, بلاک, בלוק, 禁用, 停用
		can't access, cannot access, can not access, keep out, stay out, stay away, draußen, unterbunden, ukatu, restrinx
		not accept, keine berechtigung, nicht berechtigt, nicht zugelassen, pas l'autorisation, pas autorisé, pas les droits, no tiene permiso, no tienes permiso, no autorizad, no está autorizad, não tem permissão, non hai il permesso, non si dispone, geen toestemming, geen toegang, brak uprawnień, nie masz uprawnień, nemáte oprávnění, nemáte přístup, nincs jogosultság, nincs engedély, nu aveți permisiunea, saknar behörighet, ikke tilladelse, ikke tilgang, ei oikeutta, yetkiniz, izniniz, нет прав, нет доступа, не разрешен, немає прав, не дозволен, нямате права, нямате достъп, одбиен, onemoguć, מורש, مجاز, پذیر نیست, غير مصرح, 无权, 無權, 没有权限, 沒有權限, 未授权, 造成威胁, 権限がありません, 権限がない, アクセスできません, ご利用いただけません, 利用できません, 허용되지, 허용하지, 권한이 없, 할 수 없, 불가
		cut off, turned away, not accepted, isn't allowed, aren't allowed, can't show, cannot show, cannot serve, does not serve, can't be visited, cannot be visited, unterbroch, gestoppt, nicht möglich, abgewehrt, ausgesperrt, geblockt, interrompu, n'a pas pu, ne peut pas, interrumpid, no puede, impedid, interrompid, não pode, interrott, non può, non è possibile, gestopt, onderbroken, niet mogelijk, niet toegestaan, wstrzyman, przerwan, zawieszon, nie jest możliwe, pozastaven, přerušen, prerušen, není možn, nie je možn
		приостановл, прерван, невозмож, призупинен, зупинен, неможлив, спрян, преустанов, прекъснат, невъзмож, durdur, mümkün değil, διακόπ, διακοπ, felfüggeszt, leállít, suspendat, oprit, stoppat, avbrut, stoppet, afbrudt, keskeyt, estetään, tạm dừng, ngừng, dihentikan, ditangguhkan, ditutup
		إيقاف, تعليق, منع, يتعذر, متوقف, הופסק, נעצר, לא ניתן, 暂停, 暫停, 中断, 终止, 谢绝, お断り, 停止, 중단, 정지, 막았, ปิดกั้น`,
	ofHuman: `captcha, recaptcha, hcaptcha, robot, bot$, bots$, antibot, anti-bot, humans$, human, automated, automatic program, automatically generated requests, automation, real person, person or, a person, actual person, scraping, scraper, crawl, puzzle, press and hold, press & hold, press ＆ hold, click and hold, hold the button, slide to, slide the, drag the, characters you see, characters below, characters shown, characters seen, characters in the, letters you see, letters shown, letters below, code shown, code in the image, code from the image, code you see, text in the image, text shown, words you see, words shown, the image below, verification code, proof of work, proof-of-work
		roboter, mensch, automatisiert, zeichen aus dem, zeichen im bild, zeichen auf dem, schieberegler, sicherheitsabfrage
		humain, automatis, caractères, faites glisser, le code affiché, programme automat
		humano, automatizad, programa automático, persona real, ser una persona, eres una persona, los caracteres, rompecabezas, desliza, mantén pulsado
		robô, um humano, ser humano, automatizado, os caracteres, quebra-cabeça, arraste
		umano, automatizzat, persona reale, i caratteri, trascina
		mens$, mensen, menselijk, geautomatiseerd, schuif
		robotem, człowiek, automatyczn, suwak, przesuń, znaki z obrazka
		člověk, človek, čovjek, čovek, žmogus, cilvēk, inimene, automatick, posun, posuňte
		ember, automatizált
		umană, automatizat, ființă
		människa, menneske, automatisk trafik, automatiserad, ihminen, robotti
		insan, otomatik, basılı tut
		ρομπότ, άνθρωπος, αυτοματο
		робот, человек, человеком, людин, човек, автоматическ, автоматичн, автоматизир, автоматизов, капч, символы, символи, сдвиньте, пазл, ползун, антибот
		روبوت, ربات, إنسان, انسان, بشري, כבוט, רובוט, אנושי, בן אדם, หุ่นยนต์, มนุษย์, บอท
		người máy, rô-bốt, rô bốt, con người, manusia, otomatis
		机器人, 機器人, 自动程序, 自動程式, 自动化, 自動化, 人机, 人機, 真人, 爬虫, 抓取工具, 验证码, 驗證碼, 滑块, 滑塊, 滑动, 拼图
		ロボット, 人間, 自動プログラム, 自動化された, 画像認証, 表示されている文字, ボット, パズル
		로봇, 사람, 자동화, 자동입력, 자동 프로그램, 보안문자, 아래 문자, 그림문자, 봇
		रोबोट, मानव
		ljudsk, žmog, njeri, vélmenni, roboti, binadamu, адам
		ռոբոտ, რობოტ, ადამიან, इंसान, कैप्चा, রোবট, মানুষ, روبوٹ, 자동 입력, 자동접속, 자동 접속
		botti$, bottia$, tick the box, tick this box, robota$, persoa$, tao$
		ரோபோ
		real visitor, genuine visitor, harvest, une personne, un programme, una persona, un programma, uma pessoa, een persoon, automat$, automatem$, prawdziw, máquina, macchina, живой человек, อัตโนมัติ`,
	ofVerify: `verif, confirm, prove, validat, check, challenge, security, solve the, solve this, enter, type the, input the, complete, make sure, let us know, demonstrat, show us, tell if, determine, testing, detected, noticed
		überprüf, prüf, bestätig, verifizier, sicherheits, feststellen, stellen wir fest, geben sie, erkannt, festgestellt
		vérif, saisissez, entrez, prouve, détecté, sécurité, compléter, assurer que
		verific, introduzca, introduce, escriba, demuestr, demostrar, comprob, seguridad, asegurar, detectado, detectamos, completar
		comprov, segurança, desafio, resolva, digite, insira
		conferm, inserisci, digita, dimostr, rilevat, sicurezza
		verifi, bevestig, voer, controle, controleren
		weryfik, wpisz, potwierd, wykry, zauważy, sprawdz, sprawdź
		ověř, zadejte, opište, potvrď, kontrol, overte, overeni
		igazol, ellenőriz, erősítse, biztonsági
		dovedi
		bekräft, bekræft, bekreft, kontroller, verifier, säkerhets
		vahvist, tarkist, varmist
		doğrula, onayla, tespit, güvenlik, emin ol
		επιβεβαι, επαλήθευ, έλεγχ
		провер, подтверд, докаж, доказ, убедиться, введите, въведете, введіть, обнаруж, зафиксир, засеч, помітил, виявил, перевір, підтверд, доведіть, потвърд, потврд, упевн, безопасност
		تحقق, إثبات, تأكيد, أثبت, تایید, تأیید, بررسی, أمان
		אמת, אשר, הוכח, אימות, בדיק, אבטחה
		ยืนยัน, ตรวจสอบ
		xác minh, xác nhận, kiểm tra, bảo mật
		verifikasi, konfirmasi, buktikan, sahkan, keamanan
		验证, 驗證, 拖动, 拖動, 完成, 输入, 輸入, 确认, 確認, 检查, 檢查, 校验, 检测, 認證, 认证, 核实, 安全
		検証, 認証, 入力, 証明, 検知, 検出
		확인, 입력, 인증, 검증, 증명, 감지
		सत्याप
		potvrd, provjer, proveri, dokaž, overuj, overí, kinnita, kontrolli, tõesta, apstipr, pārbaud, pierād, patvirtin, tikrin, patikrin, įrody, verifik, konfirm, thibitisha, hakikisha, verifieer, staðfest, təsdiq, yoxla, verifiqu, растаңыз, тексер
		հաստատ, ստուգ, დაადასტურ, დამტკიც, შემოწმ, सत्यापित, पुष्टि, जाँच, जांच, যাচাই, নিশ্চিত, تصدیق
		preverj, vërtet, přesvědč, egiaztatu, виконується перевірка
		בודק, உறுதிப்படுத்த
		complete o, desafío`,
	ofUnusual: `unusual, suspicious, abnormal, malicious, excessive, too many, too much, too fast, too quickly, too often, too frequent, misus, abus, attack, threat, dangerous, harmful, triggered, infected, malware, irregular, anomal, high number, high rate, high volume, large number, going too, super-human, superhuman, looks automated, look automated, flood, spam
		ungewöhnlich, verdächtig, zu viele, zu oft, zu schnell, zu häufig, missbr, angriff, auffällig, schädlich, übermäßig
		inhabituel, suspecte, suspect$, trop de, trop grand, trop nombreu, malveillan, anormal, abusi, excessi, surhumain
		inusual, sospechos, demasiad, indebid, malicios, muchas peticiones, muchas solicitudes, velocidad super, sobrehuman
		incomum, suspeit, muitas, indevid, excessiv, anômal
		insolit, sospett, troppi, troppe, anomal, malevol
		ongebruikelijk, verdacht, te veel, te vaak, misbruik
		nietypow, podejrzan, zbyt wiele, zbyt dużo, zbyt częst, nadmiern
		neobvykl, podezřel, příliš mnoho, podozriv, príliš veľa, nezvykl
		szokatlan, gyanús, túl sok
		neobișnuit, prea multe
		ovanlig, misstänk, för många, usædvanlig, mistænkelig, for mange, uvanlig, mistenkelig
		epätavalli, epäilyttäv, liian mon
		olağan dışı, olağandışı, şüpheli, çok fazla, anormal, olağan dışı bir
		ασυνήθιστ, ύποπτ, πάρα πολλ
		необычн, подозрительн, слишком много, слишком част, незвичн, підозріл, забагато, надто багато, необичаен, необичайн, подозрит, твърде много, вредонос, похожи на автомат
		غير معتاد, غير عادي, مشبوه, كثير, غیرعادی, مشکوک
		חריג, חשוד, יותר מדי
		ผิดปกติ, มากเกินไป
		bất thường, đáng ngờ, quá nhiều
		tidak biasa, mencurigakan, terlalu banyak
		异常, 異常, 频繁, 頻繁, 可疑, 过多, 過多, 过快, 恶意, 威胁, 攻击, 风控, 太快, 过于
		不正, 通常と異なる, 大量, 集中, 多数の, 短時間
		비정상, 이상 , 과도, 너무 많은, 의심, 짧은 시간
		suspected, we suspect, risk control, tuyas en poco, atípic
		neuobičajen, sumnjiv, previše, nezvyčajn, neobvykl, nenavad, sumljiv, preveč, ebatavali, kahtlas, liiga palju, neparast, aizdomīg, pārāk daudz, neįprast, įtartin, per daug, pazakont, dyshim, shumë kërkesa, ongewone, verdagte, sospit, massa peticions, massa sol, óvenjuleg, grunsamleg, of marg, qeyri-adi, şübhəli, həddindən, күдікті, тым көп, әдеттен тыс
		անսովոր, կասկածելի, չափազանց, უჩვეულო, საეჭვო, ძალიან ბევრი, असामान्य, संदिग्ध, बहुत अधिक, बहुत ज़्यादा, অস্বাভাবিক, সন্দেহ, غیر معمولی, بہت زیادہ, غیر عادی, 怀疑, 懷疑, 疑似, 风险, 風險
		gehiegi, demasiadas, необичан, ebatavalise, luar biasa, mencurigakan
		nadměrn, مشکوک, 多くの, 많아, 많거나
		poco habitual, aggressive
		frequency, too high, faster than, in a short time, short period of time, rapid succession, in kurzer zeit, sehr viele, en peu de temps, un grand nombre, en poco tiempo, un gran número, em pouco tempo, grande número, in poco tempo, numero elevato, in korte tijd, heel veel verzoek, w krótkim czasie, zbyt szybk, v krátké době, velké množství, příliš rychl, за короткое время, большое количество, большого количества, слишком быстро, занадто, велику кількість, за короткий час, голям брой, за кратко време, прекалено, kısa süre, çok sayıda, aşırı, μεγάλο αριθμό, σύντομο χρον, rövid idő, nagy szám, număr mare, timp scurt, kort tid, för snabbt, for hurtigt, for raskt, lyhyessä ajassa, poikkeuksellis, liian nopea, quá nhanh, waktu singkat, berlebihan
		عدد كبير, وقت قصير, تعداد زیاد, ריבוי, רבות מדי, 过高, 過高, 太频, 頻繁, 잦은, จำนวนมาก, บ่อยเกินไป, बहुत सारे, बार-बार
		violat, verstoß, verstößt, enfreint, violación, violação, violazione, schending, naruszen, porušen, нарушен, порушен, ihlal, παραβίασ, 违反, 違反, 위반, انتهاك`,
	ofWait: `try again, trying again, wait$, retry, later$, patience, few seconds, few moments, few minutes, couple of minutes, couple of seconds, momentarily, automatically refresh, refresh automatically, automatically redirect, one moment, just a moment, slow down, reload, refresh, almost there, almost done, one more step, stay put, open automatically, checking
		später, warten, geduld, einen moment, moment bitte, erneut, automatisch weiter, wartezeit
		patient, patienter, réessay, plus tard, quelques instants, quelques minutes, un instant, temps d'attente
		espere, inténtelo, inténtalo, más tarde, unos minutos, un momento
		aguarde, tente novamente, mais tarde, alguns instantes, um momento
		attend, riprova, più tardi
		later opnieuw, een moment, even geduld, probeer
		proszę czekać, spróbuj, później, chwil
		počkejte, zkuste, později, okamžik, čakajte, skúste, neskôr
		várjon, később, próbálja
		așteptați, încercați, mai târziu
		vänta, försök igen, vent$, prøv igen, prøv igjen, senere
		odota, yritä, myöhemmin
		lütfen bekle, bekleyin, tekrar dene, daha sonra, süre bekle
		περιμένετε, αργότερα, δοκιμάστε
		подождите, попробуйте, позже, почти готово, минуту, секунд, зачекайте, спробуйте, пізніше, изчакайте, опитайте, по-късно, через некоторое
		انتظر, الانتظار, لاحقا, لاحقًا, المحاولة, بعدا, تلاش, صبر
		המתן, המתינו, מאוחר, נסה, נסו
		รอสักครู่, โปรดรอ, ลองใหม่
		vui lòng đợi, thử lại, chờ
		tunggu, coba lagi, cuba lagi, beberapa saat
		请稍, 請稍, 稍后, 稍後, 等待, 重试, 重試, 再试, 再試, 稍候, 再访问
		しばらく, お待ち, 後で, 時間をおいて, もう一度
		잠시 후, 다시 시도, 기다려, 나중에
		प्रतीक्षा, पुनः प्रयास
		pričekajte, sačekajte, pokušajte, kasnije, počakajte, poskusite, pozneje, oodake, proovige, hiljem, uzgaidiet, mēģiniet, vēlāk, palaukite, bandykite, vėliau, prisni, provoni, më vonë, subiri, jaribu tena, baadaye, reynið aftur, bíðið, síðar, gözləyin, yenidən cəhd, espereu, torneu-ho, més tard, күте, кейінірек, қайталап
		սպասեք, փորձեք, დაელოდ, სცადეთ, მოგვიანებით, बाद में, कुछ देर, অপেক্ষা, পরে আবার, انتظار, بعد میں, دوبارہ, منتظر, در حال انتقال
		odśwież, aktualisieren, actualisez, actualice, atualize, ricarica, ververs, обновите, обновляйте, yenile, yenilemeyin, saiatu, geroago, один момент, одну минуту, хвилинк, ladataan, 刷新, 새로고침, 잠시만
		waiting for
		come back, hold on, hang tight, espera un, espere um, espere unos, de novo, za chwilę, inom kort, om en stund, hetki, لحظة, רגע, 一会儿, 少々`,
	ofTrace: `ray id, incident id, incident number, support id, request id, reference id, reference number, reference #, reference error, block reference, attack id, transaction id, event id, error code, error id, block id, proxy id, session id, block reason, block details, support key, your ip, ip address:, ip:, contact us, contact support, contact the, contact our, contact site, contact your, administrator, site owner, website owner, owner of this, webmaster, whitelist, support ticket, in error, if you have questions, please email, e-mail us, email us, powered by, protected by, protected against, security by, security service, firewall, why am i seeing, why did this happen, why have i been, ddos protection, ddos-guard, waf$, go back, for security reasons, cf-ray
		support-id, vorfall, aus sicherheitsgründen, kontaktieren, wende dich, wenden sie
		administrateur, pour des raisons de sécurité, contactez, identifiant de l'incident
		kontaktujte, správcu, üzemeltet, furnizorul, contactați, administrador, id de soporte, por seguridad, por motivos de seguridad, contacte
		amministratore, per motivi di sicurezza, beheerder, administratora, správce, rendszergazd, yönetici, διαχειριστ
		администратор, инцидент, адміністратор, обратитесь, причин, что делать, почему
		请求id, 事件id, 管理员, 管理員, 反馈, 管理者, お問い合わせ, 관리자, 고객센터, المسؤول, مدير`,
	ofYou:     `you, your, yours, you're, you’re, you've, you’ve, yourself, please, try again, bitte, veuillez, merci de, por favor, per favore, alstublieft, proszę, prosím, пожалуйста, моля$, будь ласка, lütfen, vui lòng, silakan, mohon, يرجى, ihr$, ihre, ihren, ihrer, ihrem, sie$, du$, dein, dir$, dich, vous, votre, vos$, tu$, tus$, su$, sus$, usted, eres, você, seu$, sua$, seus, suas, tuo$, tua$, ti$, sei$, hai$, vostro, vostra, lei$, je$, jouw, jij, u$, uw$, twój, twoj, jesteś, zostałeś, masz, vaš, vaša, vaší, vašeho, vašej, vám, jste, ste$, ön$, önt, önnek, dumneavoastr, nu sunteți, du$, dig$, ditt, din$, deg$, olet, sinun, siz, sizin, adresiniz, σας, είστε, εισαι, вы, вас, вам, ваш, ви$, вашия, вашата, те$, أنت, أنك, لديك, شما, אתה, שאינך, שלך, bạn, anda, kamu, 您, 你, 亲, 親, あなた, お使い, お客様, ご利用, ご覧, 귀하, 당신, 사용자, 회원님, आप, tuyo, tuya, contigo, cliquez, cochez, glissez, desliza, haz clic, haga clic, molimo, vas$, vaše, prosimo, teie$, palun, jūs, lūdzu, jums, prašome, ju$, ju lutem, juaj, jy$, jou$, asseblief, þú$, þig, þinn, þín, vinsamleg, zəhmət, vostr, si us plau, teu$, teva, tafadhali, yako$, umezuiwa, сіз, դուք, ձեր, խնդր, თქვენ, გთხოვ, कृपया, আপনি, আপনার, آپ, لطفا, אנא, zure$, คุณ, ท่าน, กรุณา, โปรด, yetkiniz, izniniz, erişiminiz, நீங்கள்`,
	ofNone:    `not$, n't, don't, aren't, isn't, can't, cannot, kein, nicht, pas$, non$, no$, não, geen, niet, nie$, není, nejste, nem$, nu$, inte, ikke, ei$, et$, değil, olmadığ, δεν, не$, нет, ليس, لست, نیست, لא, לא$, אינך, שאינך, ไม่, không, bukan, tidak, 不是, 非, ではない, でない, 아닌, 아님, 아니, नहीं, nije, niste, nisi$, neesat, nav$, nesate, nėra, nuk$, ekki$, deyil, емес, չեք, არ , নয়, নন, نہیں, ettet`,
	ofPlace:   `country, countries, region, territory, location, european union, european economic, eea$, gdpr, your area, ihrem land, deinem land, ihrer region, pays$, votre région, tu país, su país, país, paese, região, kraju, krajem, zemi, zemí, стране, страны, регион, країні, 国家, 地区, 地區, 国・地域, お住まい, 국가, 지역, ülke, دولة, بلد, بلدك, quốc gia, negara, your location, کشور, देश, 国外, 海外, 境外, where you are, abroad, overseas, foreign, ihrem standort, ausland, ausländisch, votre emplacement, étranger, ubicación, extranjer, localização, estrangeir, sua posizione, tua posizione, estero$, locatie, buitenland, lokalizacj, zagranic, zahrani, зарубеж, иностран, местоположен, закордон, за кордон, чужбина, konumunuz, yurt dışı, 해외, موقعك`,
	ofTunnel:  `vpn, proxy, proxies, unblocker, anonymizer, tor$, впн, 代理, プロキシ, 프록시`,
	ofScript:  `enable javascript, enable js, enable cookies, javascript, cookies, ad blocker, ad blockers, adblock, browser extension, js$, turn on, turn off, disable, выключите, отключите, включите, активир, activez, desactive, active javascript, aktivieren, deaktivieren, kapatın, 启用, 关闭, 無効, 有効, turn it off, turn them off, switch it off, switch off, جاوااسکریپت, جافا سكريبت, جافاسكريبت, 자바스크립트, जावास्क्रिप्ट`,
	ofQueue:   `in line, line up, queue, waiting room, waitingroom, place in line, ahead of you, turn to, your turn, warteraum, warteschlange, wartezimmer, an der reihe, file d'attente, file d’attente, salle d'attente, cola$, sala de espera, en cola, fila de espera, fila virtual, in fila, sala d'attesa, wachtrij, wachtkamer, kolejc, poczekalni, fronta, frontě, sırada, sıranız, очеред, черзі, 排队, 排隊, 等候室, 待機, 順番, 대기열, 대기 순서, 접속 대기, kuyruk, in front of you, vor ihnen, vor dir, devant vous, delante de, por delante, à sua frente, in coda, davanti a te, voor u$, przed tobą, před vámi, före dig, foran dig, перед вами, пред вас, önünüzde, 前面还有, 前面還有, 대기 중, lose your spot, lose your place, people ahead, votre tour, su turno, tu turno, seu turno, tuo turno, 序号, 序號`,
	ofLogin:   `log in to continue, log in to view, log in to see, log in to access, sign in to continue, sign in to view, sign in to see, sign in to access, must log in, must login, must sign in, must be logged in, need to log in, need to be logged in, need to sign in, melden sie sich an um, melde dich an um, bitte anmelden, connectez-vous pour, identifiez-vous pour, inicia sesión para, para continuar ingresa, para continuar inicia, faça login para, entre na sua conta, accedi per, log in om, zaloguj się aby, přihlaste se, войдите чтобы, увійдіть щоб, giriş yapmalısınız, 请登录后, 請登入後, 登录后才, 登录后查看, 登录后继续, ログインして続, ログインが必要, 로그인이 필요, 로그인 후 이용`,
	ofGoing:   `continue, proceed, fortfahren, fortzufahren, weiter$, continuer, continuar, continua$, continuare, doorgaan, kontynuuj, kontynuować, pokračovat, folytat, fortsätt, fortsett, devam, продолж, продовж, продължи, 继续, 繼續, 続ける, 계속, متابعة, המשך`,
	ofConsent: `cookie, consent, your privacy, our partners, partners$, privacy settings, accept all, reject all, personal data, personalised, personalized, zustimm, einwillig, partner$, datenschutz, akzeptier, consentement, partenaires, vie privée, accepter, consentimiento, socios, privacidad, aceptar, consenso, privacidade, toestemming, zgod, partnerów, согласи, 同意`,
	ofFailure: `error, fehler, erreur, error$, erro$, errore, fout, błąd, chyba, hiba, eroare, fel$, virhe, hata, σφάλμα, ошибка, помилка, грешка, 错误, 錯誤, エラー, 오류, خطأ, sorry, oops, something went wrong, http, nginx, apache, openresty, litespeed, server at, port, code, status, page, temporarily, seconds, available, expected, result, message, all rights reserved, terms, privacy policy, copyright, thank, try a different, 很抱歉`,
}

// stem is a node of a tree of words, letter by letter.
type stem struct {
	next  map[rune]*stem
	part  notion // of words that begin so
	whole notion // of the word that ends here
}

// atStart are the words that begin where a word begins, anywhere the others.
var atStart, anywhere = stemsOf(lexicon)

func stemsOf(lexicon map[notion]string) (atStart, anywhere *stem) {
	atStart, anywhere = &stem{}, &stem{}
	for of, list := range lexicon {
		for w := range strings.SplitSeq(strings.NewReplacer("\n", ",", "\t", "").Replace(list), ",") {
			if w = strings.TrimSpace(w); w == "" {
				continue
			}
			w, whole := strings.CutSuffix(w, "$")
			at := anywhere
			if r, _ := utf8.DecodeRuneInString(w); unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic) {
				at = atStart
			}
			for _, r := range plainly(w) {
				if at.next == nil {
					at.next = map[rune]*stem{}
				}
				if at.next[r] == nil {
					at.next[r] = &stem{}
				}
				at = at.next[r]
			}
			if whole {
				at.whole |= of
			} else {
				at.part |= of
			}
		}
	}
	return atStart, anywhere
}

// plainly are the letters of a text in lower case, with one kind of apostrophe
// and single spaces for what stands between words.
func plainly(s string) []rune {
	runes := make([]rune, 0, len(s))
	for _, r := range s {
		switch r = unicode.ToLower(r); {
		case r == '’':
			r = '\''
		case r == 'ţ': // Romanian is written with either
			r = 'ț'
		case r == ',' || unicode.IsSpace(r):
			r = ' '
			if n := len(runes); n > 0 && runes[n-1] == ' ' {
				continue
			}
		}
		runes = append(runes, r)
	}
	return runes
}

// spaced tells whether a letter is of a script that sets its words apart, or
// puts nothing before them.
func spaced(r rune) bool { return r < 0x590 || r >= 0x1e00 && r < 0x2e80 }

// notionsIn are what a sentence is about, and how many of its letters are in
// words that say so.
func notionsIn(sentence string) (about notion, letters int) {
	runes := plainly(sentence)
	// inWord tells whether the letter at i is in one word with the one beside
	// it: Latin letters are set apart from Chinese ones by nothing else.
	inWord := func(i, beside int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i])) && spaced(runes[i]) == spaced(runes[beside])
	}
	marked := 0 // runes before it are counted
	for i := range runes {
		trees := [2]*stem{anywhere}
		if !inWord(i-1, i) {
			trees[1] = atStart
		}
		end := 0
		for _, at := range trees {
			for j := i; at != nil; j++ {
				found := at.part
				if j == i || !inWord(j, j-1) {
					found |= at.whole
				}
				if found != 0 {
					about |= found
					end = j
				}
				if j == len(runes) {
					break
				}
				at = at.next[runes[j]]
			}
		}
		if trees[1] != nil {
			for end > i && inWord(end, end-1) && runes[end] < 0x2e80 { // to the end of the word
				end++
			}
		}
		for j := max(i, marked); j < end; j++ {
			if unicode.IsLetter(runes[j]) {
				letters++
			}
		}
		marked = max(marked, end)
	}
	return about, letters
}

func (n notion) has(all notion) bool { return n&all == all }

func (n notion) any(of notion) bool { return n&of != 0 }

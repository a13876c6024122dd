/** Lists of domains, and texts that hide something. */
import t from 'tap'
import { createAdmits, domainsRefusal } from '../../../src/features/tools/web/domains.ts'
import { cutText, visibleText, visibleTitle } from '../../../src/features/tools/web/shown-text.ts'

const admits = (allowed: readonly string[], refused: readonly string[], url: string): boolean =>
  createAdmits(allowed, refused)(new URL(url))

t.test('a domain means itself and its subdomains, and nothing that only ends alike', async t => {
  const allowed = ['Example.com']
  t.ok(admits(allowed, [], 'https://example.com/x'))
  t.ok(admits(allowed, [], 'https://a.b.example.com./x'))
  t.notOk(admits(allowed, [], 'https://notexample.com/'))
  t.notOk(admits(allowed, [], 'https://example.com.evil.test/'))
  t.notOk(admits(allowed, [], 'https://evil.test/?example.com'))
  t.notOk(admits([], allowed, 'https://www.example.com/'))
  t.ok(admits([], allowed, 'https://other.test/'))
  t.ok(admits(['bücher.example'], [], 'https://xn--bcher-kva.example/'))
})

t.test('wildcards mean subdomains alone, and paths what is below them', async t => {
  t.ok(admits(['*.example.com'], [], 'https://a.example.com/'))
  t.notOk(admits(['*.example.com'], [], 'https://example.com/'))
  for (const entry of ['example.com/docs', 'https://example.com/docs/', 'example.com/docs/*']) {
    t.ok(admits([entry], [], 'https://example.com/docs'), entry)
    t.ok(admits([entry], [], 'https://example.com/docs/a?x'), entry)
    t.notOk(admits([entry], [], 'https://example.com/docs2'), entry)
    t.notOk(admits([entry], [], 'https://example.com/x/../other'), entry)
  }
  t.ok(admits(['example.com/Docs'], [], 'https://example.com/Docs/a'))
  t.ok(admits(['example.com'], ['example.com/private'], 'https://example.com/public'))
  t.notOk(admits(['example.com'], ['example.com/private'], 'https://example.com/private/x'))
})

t.test('entries that are no domains are refused, and allow nothing', async t => {
  for (const entry of ['', '*', 'a b', 'ex*mple.com', '*.', 'https://', 'a@b', '"', 'x'.repeat(301)])
    t.match(domainsRefusal(['ok.test', entry]), /entry 1 must be a domain/, entry)
  t.equal(domainsRefusal(['a.test', '*.b.test', 'c.test/d', '192.0.2.1', 'c.test:8443']), null)
  t.match(domainsRefusal(Array.from({ length: 1_201 }, () => 'a.test')), /at most 1200/)
  t.notOk(admits(['*'], [], 'https://a.test/'))
})

t.test('shown text hides nothing and is cut at whole characters', async t => {
  t.equal(visibleText('a\u0000b\u001b[31mc\u202ed\u200be\u{e0041}f\r\ng\th\ufeff'), 'ab[31mcdef\ng\th')
  t.equal(visibleText('می‌خواهم 👩‍💻'), 'می‌خواهم 👩‍💻')
  t.equal(visibleText('x\ud800y'), 'x\ufffdy')
  t.equal(visibleTitle('  a\n\n b ', 10), 'a b')
  t.equal(cutText('ab😀', 3), 'ab')
})

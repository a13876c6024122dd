import t from 'tap'
import { CitableResults, CitationScanner } from '../../../src/pipeline/answer/items/citations.ts'

const URLS = [
  'https://a.test/tea',
  'https://b.test/wiki/Tea_(drink)?x=1',
  'http://C.test/',
  'https://d.test/long/page',
]

function resultsOf(ofWhole = false): CitableResults {
  const results = new CitableResults()
  results.add(
    URLS.map(url => ({ type: 'url_citation', url, title: `Title of ${url}` })),
    ofWhole,
  )
  return results
}

/** The cited places as `text -> url`, from pieces of this size. */
function cited(text: string, size = text.length, results = resultsOf()): string[] {
  const scanner = new CitationScanner(results)
  const found = []
  for (let at = 0; at < text.length; at += Math.max(1, size))
    found.push(...scanner.push(text.slice(at, at + size)))
  found.push(...scanner.end())
  return found.map(each => `${text.slice(each.start_index, each.end_index)} -> ${each.url}`)
}

const [A = '', B = '', C = '', D = ''] = URLS
const CASES: readonly (readonly [text: string, ...places: string[]])[] = [
  ['Tea is nice ([a.test](https://a.test/tea)).', `([a.test](https://a.test/tea)) -> ${A}`],
  ['Tea is nice [a.test](https://a.test/tea).', `[a.test](https://a.test/tea) -> ${A}`],
  ['Tea (see [a](https://a.test/tea)) is nice', `[a](https://a.test/tea) -> ${A}`],
  [
    '([a](https://a.test/tea), [d](https://d.test/long/page))',
    `[a](https://a.test/tea) -> ${A}`,
    `[d](https://d.test/long/page) -> ${D}`,
  ],
  ['[[1]](https://a.test/tea)', `[[1]](https://a.test/tea) -> ${A}`],
  ['[a](https://a.test/tea "A title (1)") b', `[a](https://a.test/tea "A title (1)") -> ${A}`],
  ['[a](<https://a.test/tea>)', `[a](<https://a.test/tea>) -> ${A}`],
  ['[x](https://b.test/wiki/Tea_(drink)?x=1)', `[x](https://b.test/wiki/Tea_(drink)?x=1) -> ${B}`],
  ['[https://a.test/tea](https://a.test/tea)', `[https://a.test/tea](https://a.test/tea) -> ${A}`],
  ['[https://a.test/tea](https://other.test/)', `https://a.test/tea -> ${A}`],
  ['See https://a.test/tea.', `https://a.test/tea -> ${A}`],
  ['See https://a.test/tea', `https://a.test/tea -> ${A}`],
  ['(https://b.test/wiki/Tea_(drink)?x=1)', `https://b.test/wiki/Tea_(drink)?x=1 -> ${B}`],
  [
    '<https://a.test/tea>, HTTPS://A.test/tea#part!',
    `https://a.test/tea -> ${A}`,
    `HTTPS://A.test/tea#part -> ${A}`,
  ],
  ['http://a.test/tea/ 见https://a.test/tea。', `http://a.test/tea/ -> ${A}`, `https://a.test/tea -> ${A}`],
  ['**https://c.test**', `https://c.test -> ${C}`],
  ['Nice [1], better [3][4].', `[1] -> ${A}`, `[3] -> ${C}`, `[4] -> ${D}`],
  ['Nice[1, 3]', `[1, 3] -> ${A}`, `[1, 3] -> ${C}`],
  ['Nice [[2]].', `[[2]] -> ${B}`],
  ['[1]: https://d.test/long/page', `https://d.test/long/page -> ${D}`],
  ['[a [1] b](https://a.test/tea)', `[1] -> ${A}`, `https://a.test/tea -> ${A}`],
  ['[see [2] and more\n\n[3]', `[2] -> ${B}`, `[3] -> ${C}`],
  ['😀😀 [1]', `[1] -> ${A}`],
  ['```\nlist[1] = 2\n```\nand [1]', `[1] -> ${A}`],
  ['`list[1]` and [2]', `[2] -> ${B}`],
  ['[5] [0] [1, 9] [x] [1.5] [2024] list [ 1 ]'],
  ['https://a.test/tea/more https://a.test/ ahttps:/ http: https://'],
  ['[a](https://other.test/) [1](https://other.test/)'],
  [`[${'x'.repeat(2_000)}](https://a.test/tea)`, `https://a.test/tea -> ${A}`],
  [`https://a.test/${'x'.repeat(5_000)}`],
  ['[a](https://a.test/te\na)'],
  ['no link at all'],
]

t.test('every place that names a result is cited, however the text is cut', async t => {
  for (const [text, ...places] of CASES)
    for (const size of [text.length, 1, 2, 3, 7])
      t.same(cited(text, size), places, `${size}: ${text.slice(0, 80)}`)
})

t.test('where the prompt had the results, a text that names none of them rests on all', async t => {
  t.same(
    cited('Tea.', 1, resultsOf(true)),
    URLS.map(url => `Tea. -> ${url}`),
  )
  t.same(cited('Tea [2].', 1, resultsOf(true)), [`[2] -> ${B}`])
  t.same(cited('', 1, resultsOf(true)), [])
  const results = resultsOf(true)
  cited('Tea [2].', 1, results)
  t.same(cited('More.', 1, results), [], 'a later text')
  results.openTurn()
  cited('[1]', 1, results)
  results.dropTurn()
})

t.test('an answer has a thousand citations at most, and a page one number', async t => {
  const results = resultsOf()
  t.same(results.add([{ type: 'url_citation', url: 'http://a.test/tea/', title: 'again' }], false), [1])
  t.equal(cited('[1] '.repeat(3_000), 100, results).length, 1_000)
})

t.test('a long text without end of its brackets costs no more for each character', async t => {
  const text = '[(http://'.repeat(50_000)
  t.same(cited(text, 1), [])
})

/** The bar in terminals of every width, with and without Unicode and colors. */
import fc from 'fast-check'
import t from 'tap'
import {
  type BarPart,
  type BarTerminal,
  barStyle,
  drawnBar,
  drawsOver,
  ProgressBar,
  percent,
} from '../../../../src/apps/commands/terminal/progress-bar.ts'
import { search } from '../../../support/property.ts'

const PARTS: readonly BarPart[] = [
  { text: '42%', rank: 0 },
  { text: '4,200/10,000', rank: 1 },
  { text: '3 failed', rank: 3, color: 'red' },
  { text: 'ETA 2:45', rank: 2 },
  { text: 'in_progress', rank: 4 },
]
const PLAIN = { blocks: false, colors: false }

t.test('what matters least leaves first when the terminal is narrow', async t => {
  const at = (columns: number) => drawnBar(0.42, PARTS, { ...PLAIN, columns })
  t.equal(
    at(120),
    '[############..................]  42%  4,200/10,000  3 failed  ETA 2:45  in_progress',
    'the bar does not grow without end',
  )
  t.equal(at(80), '[##########...............]  42%  4,200/10,000  3 failed  ETA 2:45  in_progress')
  t.equal(at(60), '[#######...........]  42%  4,200/10,000  3 failed  ETA 2:45')
  t.equal(at(50), '[###.....]  42%  4,200/10,000  3 failed  ETA 2:45')
  t.equal(at(49), '[#######..........]  42%  4,200/10,000  ETA 2:45')
  t.equal(at(30), '42%  4,200/10,000  ETA 2:45')
  t.equal(at(20), '42%  4,200/10,000')
  t.equal(at(10), '42%')
  t.equal(at(3), '')
})

t.test('no width, share or text makes the line wrap', async () => {
  const part = fc.record({ text: fc.string({ maxLength: 30 }), rank: fc.nat(9) })
  fc.assert(
    fc.property(
      fc.double({ noNaN: true }),
      fc.array(part, { maxLength: 8 }),
      fc.nat(200),
      fc.boolean(),
      (share, parts, columns, blocks) =>
        drawnBar(share, parts, { columns, blocks, colors: false }).length <= Math.max(0, columns - 1),
    ),
    search(),
  )
})

t.test('blocks need Unicode, and colors a terminal that has them', async t => {
  t.equal(drawnBar(0.5, [], { columns: 11, blocks: true, colors: false }), '█████░░░░░')
  t.equal(drawnBar(0.5, [], { columns: 11, blocks: false, colors: false }), '[####....]')
  t.equal(
    drawnBar(0.5, [{ text: '3 failed', rank: 0, color: 'red' }], {
      columns: 21,
      blocks: false,
      colors: true,
    }),
    '[\x1b[32m####\x1b[39m....]  \x1b[31m3 failed\x1b[39m',
  )
  const styleOf = (environment: Record<string, string>, out: Partial<BarTerminal> = {}) =>
    barStyle({ write: () => undefined, ...out }, environment)
  for (const [environment, blocks] of [
    [{}, false],
    [{ LANG: 'C' }, false],
    [{ LANG: 'de_DE.ISO-8859-1' }, false],
    [{ LANG: 'de_DE.UTF-8' }, true],
    [{ LANG: 'C.utf8' }, true],
    [{ LANG: 'de_DE.UTF-8', LC_ALL: 'C' }, false],
    [{ LANG: 'C', LC_CTYPE: 'C.UTF-8', LC_ALL: '' }, true],
  ] as const)
    t.equal(styleOf(environment).blocks, blocks, JSON.stringify(environment))
  t.equal(styleOf({}, { hasColors: () => true }).colors, true)
  t.equal(styleOf({}, { hasColors: () => false }).colors, false)
  t.equal(styleOf({}).columns, 80)
  t.equal(styleOf({}, { columns: 0 }).columns, 80, 'a terminal that does not tell')
  t.equal(styleOf({}, { columns: 20 }).columns, 20)
})

t.test('all is 100 percent, and nearly all is not', async t => {
  t.equal(percent(0, 0), '100%')
  t.equal(percent(0, 7), '0%')
  t.equal(percent(9999, 10_000), '99%')
  t.equal(percent(10_000, 10_000), '100%')
})

// biome-ignore lint/suspicious/noControlCharactersInRegex: it is what terminals read
const CONTROLS = /(\r|\n|\x1b\[K)/

/** A terminal that shows what a person would see, by the three controls that are used. */
function screen(columns: number) {
  const lines = ['']
  let at = 0
  return {
    isTTY: true,
    columns,
    lines,
    write(text: string) {
      for (const part of text.split(CONTROLS)) {
        const line = lines.at(-1) ?? ''
        if (part === '\n') {
          lines.push('')
          at = 0
        } else if (part === '\r') at = 0
        else if (part === '\x1b[K') lines[lines.length - 1] = line.slice(0, at)
        else {
          lines[lines.length - 1] = line.slice(0, at) + part + line.slice(at + part.length)
          at += part.length
        }
      }
    },
  }
}

t.test('a shorter line leaves nothing of the longer one, and a note stands above', async t => {
  const out = screen(18)
  const bar = new ProgressBar(out, {})
  bar.show(0.1, [{ text: '1,000 requests', rank: 0 }])
  bar.show(0.2, [{ text: 'few', rank: 0 }])
  t.same(out.lines, ['[##........]  few'])
  bar.note('a note that is longer than the bar')
  t.same(out.lines, ['a note that is longer than the bar', '[##........]  few'])
  out.columns = 10
  bar.show(0.3, [{ text: 'few', rank: 0 }])
  t.same(out.lines.at(-1), 'few', 'the terminal has become narrow')
  bar.end()
  t.same(out.lines.at(-1), '')
  bar.show(1, [{ text: 'again', rank: 0 }])
  bar.clear()
  t.same(out.lines.at(-1), '')
})

t.test('nothing is drawn where a line cannot be drawn over', async t => {
  const written: string[] = []
  const write = (text: string) => written.push(text)
  for (const [out, environment] of [
    [{ write }, {}],
    [{ write, isTTY: true }, { TERM: 'dumb' }],
  ] as const) {
    t.equal(drawsOver(out, environment), false)
    const bar = new ProgressBar(out, environment)
    bar.show(0.5, [])
    bar.clear()
    bar.end()
    t.same(written, [])
    bar.note('a note')
    t.same(written.splice(0), ['a note\n'])
  }
})

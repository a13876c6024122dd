import t from 'tap'
import { excessOf, parseJson } from '../../../src/protocol/json/json.ts'

/** Objects, arrays and fields of a value. */
function partsOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  const inside = Object.values(value).reduce((sum: number, element) => sum + partsOf(element), 1)
  return Array.isArray(value) ? inside : inside + Object.keys(value).length
}

/** What stands between elements and between fields of a value. */
function commasOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  const inside: unknown[] = Object.values(value)
  return inside.reduce((sum: number, element) => sum + commasOf(element), Math.max(0, inside.length - 1))
}

/** Depth as the parsed value has it. */
function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}

t.test('nesting, parts and commas are counted as the parser would find them', async t => {
  const pieces = ['[', '{"a":', '"[{\\""', '"\\\\"', '"ü[\u{1f600}{"', '1', 'null']
  let state = 7
  const pick = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  const grow = (levels: number): string => {
    if (levels === 0 || pick(6) === 0) return pieces[2 + pick(5)] ?? '1'
    const inner = Array.from({ length: 1 + pick(2) }, () => grow(levels - 1))
    return pick(2) === 0
      ? `[${inner.join(',')}]`
      : `{${inner.map((text, key) => `"k{${key}":${text}`).join(',')}}`
  }
  for (let round = 0; round < 500; round++) {
    const text = grow(pick(9))
    const depth = depthOf(JSON.parse(text))
    const parts = partsOf(JSON.parse(text))
    const commas = commasOf(JSON.parse(text))
    const bytes = new TextEncoder().encode(text)
    const all = { depth, parts, commas }
    if (excessOf(bytes, all) !== null) t.fail(`${JSON.stringify(all)}: ${text}`)
    for (const bound of ['depth', 'parts', 'commas'] as const)
      if (all[bound] > 0 && excessOf(bytes, { ...all, [bound]: all[bound] - 1 }) !== bound)
        t.fail(`${bound} ${all[bound]}: ${text}`)
  }
  t.pass('500 documents')
})

t.test(
  'strings end where they end, however long they are and wherever quotes and backslashes stand in them',
  async t => {
    for (let length = 50; length < 140; length++) {
      for (const end of ['', '\\\\', '\\"', '\\\\\\"', '\\\\'.repeat(40), '\\"'.repeat(40)]) {
        const string = `"${'['.repeat(length)}${end}${'{'.repeat(length)}${end}"`
        const bytes = Buffer.from(`{"a":${string},"b":[${string}]}`)
        JSON.parse(bytes.toString())
        const all = { depth: 2, parts: 4, commas: 1 }
        if (excessOf(bytes, all) !== null) t.fail(`${length}, ${end}: more was found than there is`)
        for (const bound of ['depth', 'parts', 'commas'] as const)
          if (excessOf(bytes, { ...all, [bound]: all[bound] - 1 }) !== bound)
            t.fail(`${length}, ${end}: less ${bound}`)
        if (excessOf(bytes.subarray(0, -4), all) !== null) t.fail(`${length}, ${end}: cut`)
      }
    }
    t.pass('540 strings')
  },
)

t.test('a body of many levels is refused at once', async t => {
  const bomb = Buffer.alloc(20 * 1024 * 1024, '[')
  t.throws(() => parseJson(bomb), { code: 'invalid_request' })
})

t.test('a body of very many small things is refused, one of few large things is not', async t => {
  const small = Buffer.from(`[${'{"a":1},'.repeat(100_000)}1]`)
  t.throws(() => parseJson(small), { code: 'invalid_request', message: /200000 objects, arrays and fields/ })
  t.doesNotThrow(() => parseJson(Buffer.from(`[${'{"a":1},'.repeat(99_999)}1]`)))
  t.doesNotThrow(() => parseJson(Buffer.from(`["${'{:[,'.repeat(1_000_000)}"]`)), 'text is not counted')
  t.doesNotThrow(() => parseJson(Buffer.from(`[${'1,'.repeat(1_000_000)}1]`)), 'plain values count less')
  t.throws(() => parseJson(Buffer.from(`[${'1,'.repeat(1_000_001)}1]`)), {
    code: 'invalid_request',
    message: /1000000 values/,
  })
})

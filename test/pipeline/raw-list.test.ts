/** The long list of a request goes to a provider as its client wrote it, where both parsers must see the same. */
import t from 'tap'
import { FORMATS } from '../../src/formats/table.ts'
import { requestJson, withRawList } from '../../src/pipeline/request-json.ts'
import { parseJson } from '../../src/protocol/json/json.ts'
import { carryList, RAW_MAX_BYTES, RAW_MIN_BYTES, takeList } from '../../src/protocol/json/raw-list.ts'
import { chatCompletions, messages, parseResponsesRequest } from '../support/dialects.ts'
import { scriptedEndpoint } from '../support/scripted-attempt.ts'

const LONG = 'The "quick" brown fox\njumps over the läzy dog. '.repeat(400)

/** The list of a document, where its encoded form is what was parsed. */
function taken(document: string): { name: string; json: string } | null {
  const body = parseJson(Buffer.from(document)) as Record<string, unknown>
  carryList(body, body)
  return takeList(body, body)
}

const DIALECTS = [
  ['openai-responses', { parse: parseResponsesRequest }, 'input'],
  ['openai-chat', chatCompletions, 'messages'],
  ['anthropic-messages', messages, 'messages'],
] as const

for (const [format, dialect, name] of DIALECTS) {
  t.test(`a request from ${name} to ${format} says the same in either way`, async t => {
    const content: Readonly<Record<string, unknown>> = {
      'openai-responses': LONG,
      'openai-chat': LONG,
      'anthropic-messages': [{ type: 'text', text: LONG }],
    }
    const turns = ['user', 'assistant', 'user'].map(role => ({ role, content: content[format] }))
    const document = JSON.stringify(
      { model: 'acme/scripted', max_tokens: 100, [name]: turns, temperature: 0.5 },
      null,
      1,
    )
    const body = parseJson(Buffer.from(document))
    const request = dialect.parse(body)
    carryList(body, request)
    const { body: encoded } = FORMATS[format].encode(
      { request, stream: false, endUser: null },
      scriptedEndpoint(format),
    )
    const raw = takeList(request, encoded)
    const written = requestJson(encoded, 0)
    if (raw === null) throw new Error('the list was changed')
    const sent = withRawList(encoded, raw)
    t.same(JSON.parse(sent), JSON.parse(written))
    t.same(Object.keys(JSON.parse(sent)), Object.keys(JSON.parse(written)))
    t.ok(sent.includes('\n'), 'in the bytes of the client')
    t.equal(takeList(request, encoded), null, 'once')
  })
}

t.test('only a list that no parser could read in two ways is taken', async t => {
  const text = JSON.stringify(LONG)
  const yes = [
    `{"input":[${text}]}`,
    `{"messages":[{"a":${text},"b":{"a":null}}],"model":"m"}`,
    `{"x":"input","y":["input"],"input" :\n[ ${text} ]}`,
    `{"messages":"m","input":[${text}]}`,
    `{"input":[${text},"\\u00e9\\/"]}`,
    `{"in":{"input":[1]},"input":[${text}]}`,
  ]
  for (const document of yes) {
    const found = taken(document)
    t.ok(found, document.slice(0, 60))
    t.same(JSON.parse(found?.json ?? ''), JSON.parse(document)[found?.name ?? ''])
  }
  const no = [
    // A name twice, at any depth and in any spelling.
    `{"input":[${text}],"input":[${text}]}`,
    `{"input":[${text}],"in\\u0070ut":["other"]}`,
    `{"in\\u0070ut":["other"],"input":[${text}]}`,
    `{"input":[${text}],"model":"a","model":"b"}`,
    `{"input":[{"a":${text},"a":"b"}]}`,
    `{"input":[{"a":${text},"\\u0061":"b"}]}`,
    `{"input":[{"__proto__":{"a":1,"a":${text}}}]}`,
    // Numbers may be rounded in two ways.
    `{"input":[${text},1]}`,
    `{"input":[${text},1e400]}`,
    // Two lists, no list, a short one.
    `{"input":[${text}],"messages":[${text}]}`,
    `{"input":${text}}`,
    `{"a":{"input":[${text}]}}`,
    `[{"input":[${text}]}]`,
    '{"input":["short"]}',
    `{"input":["${'x'.repeat(RAW_MAX_BYTES)}"]}`,
  ]
  for (const document of no) t.equal(taken(document), null, document.slice(0, 60))
})

t.test('a list that an encoder has changed is written', async t => {
  const list = [{ role: 'user', content: LONG, a: null, b: [true, 'x'] }]
  const changed: readonly unknown[] = [
    undefined,
    'text',
    [],
    [...list, ...list],
    [{ ...list[0], content: `${LONG} ` }],
    [{ ...list[0], c: undefined }],
    [{ ...list[0], a: undefined }],
    [{ ...list[0], b: ['x', true] }],
    [{ ...list[0], b: [true] }],
    [{ ...list[0], b: { 0: true, 1: 'x' } }],
    [{ role: 'user', content: LONG, a: null }],
    [{ role: 'user', content: LONG, a: null, c: [true, 'x'] }],
    [null],
    list[0],
  ]
  const document = JSON.stringify({ input: list })
  t.ok(document.length > RAW_MIN_BYTES)
  for (const input of changed) {
    const body = parseJson(Buffer.from(document)) as Record<string, unknown>
    t.equal(takeList(body, { input }), null, JSON.stringify(input)?.slice(-60) ?? 'none')
  }
  const body = parseJson(Buffer.from(document)) as Record<string, unknown>
  t.ok(takeList(body, { input: structuredClone(list) }))
})

t.test('what is taken of any document is what the parser reads', async t => {
  let state = 11
  const pick = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  const leaves = ['null', 'true', '""', '"[{\\"input\\":["', '"\\\\"', '"ü\u{1f600}]"', '1', '"messages"']
  const names = ['a', 'b', 'input', 'messages', '\\u0061', 'in\\u0070ut', 'x\\"input']
  const grow = (levels: number): string => {
    if (levels === 0 || pick(5) === 0) return leaves[pick(leaves.length)] ?? 'null'
    const inner = Array.from({ length: pick(4) }, () => grow(levels - 1))
    return pick(2) === 0
      ? `[${inner.join(pick(2) === 0 ? ',' : ' , ')}]`
      : `{${inner.map(one => `"${names[pick(names.length)]}":${one}`).join(',')}}`
  }
  let found = 0
  for (let round = 0; round < 800; round++) {
    const list = `[${JSON.stringify(LONG)}${pick(2) === 0 ? '' : `,${grow(4)}`}]`
    const members = [
      `"${names[2 + pick(2)]}":${list}`,
      ...Array.from({ length: pick(3) }, () => `"${names[pick(names.length)]}":${grow(3)}`),
    ]
    if (pick(2) === 0) members.reverse()
    const document = `{${members.join(',')}}`
    const one = taken(document)
    if (one === null) continue
    found++
    t.strictSame(JSON.parse(one.json), JSON.parse(document)[one.name], document.slice(-200))
    t.equal(JSON.stringify(JSON.parse(one.json)), JSON.stringify(JSON.parse(document)[one.name]))
  }
  t.ok(found > 50, `${found} of 800`)
})

/** Namespaces as functions: what is sent grows no faster than what was asked, whatever names whatever. */
import t from 'tap'
import { flattenNamespaces } from '../../../src/pipeline/tool-calls/namespaces.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'

const fn = (name: string, more: object = {}) => ({ type: 'function', name, parameters: {}, ...more })
const space = (name: string, tools: readonly object[], description = 'd') => ({
  type: 'namespace',
  name,
  description,
  tools,
})
const flat = (tools: readonly object[], allowed: readonly object[] = []) => {
  const request = {
    model: 'm',
    input: 'x',
    tools,
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: allowed },
  }
  const found = flattenNamespaces(request as unknown as ResponsesRequest, [])
  const { tools: sent, tool_choice: choice } = (found?.prompt ?? {}) as unknown as {
    tools: { name: string; description?: string }[]
    tool_choice: { tools: object[] }
  }
  return { sent, allowed: choice.tools }
}

t.test('a choice names tools by namespace, by both names, or by their own name alone', async t => {
  const tools = [
    fn('plain'),
    fn('both'),
    space('a', [fn('one'), fn('both'), { type: 'custom', name: 'two' }]),
    space('b', [fn('one')]),
  ]
  const named = (entry: object) => flat(tools, [entry]).allowed
  t.same(named({ type: 'function', name: 'plain' }), [{ type: 'function', name: 'plain' }])
  t.same(named({ type: 'function', name: 'both' }), [{ type: 'function', name: 'both' }])
  t.same(named({ type: 'function', name: 'one' }), [{ type: 'function', name: 'a__one' }])
  t.same(named({ type: 'function', name: 'one', namespace: 'b' }), [{ type: 'function', name: 'b__one' }])
  t.same(named({ type: 'function', name: 'both', namespace: 'a' }), [{ type: 'function', name: 'a__both' }])
  t.same(named({ type: 'custom', name: 'one' }), [{ type: 'custom', name: 'one' }], 'of another kind')
  t.same(named({ type: 'function', name: 'one', namespace: 'c' }), [
    { type: 'function', name: 'one', namespace: 'c' },
  ])
  t.same(named({ type: 'namespace', name: 'a' }), [
    { type: 'function', name: 'a__one' },
    { type: 'function', name: 'a__both' },
    { type: 'custom', name: 'a__two' },
  ])
  t.same(named({ type: 'namespace', name: 'c' }), [])
})

t.test('a namespace that is named a thousand times is allowed once', async t => {
  const tools = [
    space(
      'n',
      Array.from({ length: 500 }, (_, at) => fn(`f${at}`)),
    ),
  ]
  const allowed = [
    ...Array.from({ length: 1_000 }, () => ({ type: 'namespace', name: 'n' })),
    { type: 'function', name: 'f7' },
  ]
  t.equal(flat(tools, allowed).allowed.length, 501)
})

t.test(
  'the description of a namespace is part of those of its tools, which are bounded together',
  async t => {
    const [few] = [flat([space('n', [fn('a', { description: 'own' }), fn('b')], 'y'.repeat(20_000))]).sent]
    t.same(
      few.map(({ description }) => description),
      [`${'y'.repeat(20_000)}\n\nown`, 'y'.repeat(20_000)],
    )
    const tools = Array.from({ length: 2_000 }, (_, at) => fn(`f${at}`, { description: 'own' }))
    const { sent } = flat([space('n', tools, '😀'.repeat(500_000))])
    const characters = sent.reduce((sum, { description = '' }) => sum + description.length, 0)
    t.ok(characters <= 1024 * 1024 + 2_000 * 5, `${characters} characters`)
    t.ok(sent.every(({ description = '' }) => description.isWellFormed() && description.endsWith('\n\nown')))
  },
)

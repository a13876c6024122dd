/** The rules of the alignment plugin are words of the caller: guardrails and moderation see them before others do. */
import t, { type Test } from 'tap'
import type { FilterAction } from '../../src/protocol/management/guardrails.ts'
import { speaking, startParrot } from '../support/provider.ts'
import { type Reply, stagesIn, startGuarded } from '../support/world.ts'

const EMAIL = 'jane.doe@example.com'
const MODEL = 'parrot/openai-chat'
const email = (action: FilterAction) => ({ slug: 'email', action, scanScope: 'all_messages' }) as const
const aligned = (settings: object = {}) => ({
  model: MODEL,
  input: 'Hello',
  plugins: [{ id: 'alignment', rules: ['Be kind', `Never name ${EMAIL}`], ...settings }],
})
const verdict = (...probabilities: number[]) => speaking(JSON.stringify({ probabilities }))
const errorOf = ({ document }: Reply) => document['error'] as { readonly message: string }

const judge = await startParrot()
const moderator = await startParrot()
t.teardown(() => {
  judge.close()
  moderator.close()
})
const rowsOf = (slug: string, baseUrl: string) => ({
  provider: { slug, name: slug, format: 'openai-chat' as const, baseUrl, apiKey: 'k' },
  model: { id: `helpers/${slug}`, name: slug, endpoints: [{ provider: slug, upstreamModel: slug }] },
})
const rows = [rowsOf('judge', judge.url), rowsOf('moderator', moderator.url)]
const { parrot, guard, ask } = await startGuarded(t, {
  providers: rows.map(({ provider }) => provider),
  models: rows.map(({ model }) => model),
  alignment: { evaluator: { model: 'helpers/judge' }, hipaaWorkspaces: [], timeoutMs: 5_000 },
  moderation: { model: 'helpers/moderator' },
})

const start = () => {
  for (const each of [parrot, judge, moderator]) each.bodies.length = 0
  judge.parts = verdict(0, 0)
  moderator.parts = speaking('{"flagged": false}')
}
const nobodyAsked = (t: Pick<Test, 'same'>) => t.same([...parrot.bodies, ...judge.bodies], [])

t.test(
  'a rule that a guardrail blocks reaches nobody, whether or not the model is told the rules',
  async t => {
    await guard({ contentFilterBuiltins: [email('block')] })
    for (const instruct of [true, false]) {
      start()
      const reply = await ask(aligned({ instruct }))
      t.equal(reply.status, 403, reply.text)
      t.equal(errorOf(reply).message, 'Request blocked by content filter: [EMAIL]')
      t.notMatch(reply.text, EMAIL)
      nobodyAsked(t)
    }
  },
)

t.test('what a guardrail redacts in a rule neither the model nor the evaluator gets', async t => {
  await guard({ contentFilterBuiltins: [email('redact')] })
  for (const instruct of [true, false]) {
    start()
    judge.parts = verdict(0, 0.9)
    const reply = await ask(aligned({ instruct, max_retries: 1 }))
    t.equal(reply.status, 403, reply.text)
    t.match(errorOf(reply).message, 'broke these rules: 2: "Never name [EMAIL]"')
    t.match(stagesIn(reply.document), [{ name: 'content-filter', data: { action: 'redacted' } }])
    t.equal(parrot.bodies.length, 2)
    t.equal(judge.bodies.length, 2)
    t.notMatch([...parrot.bodies, ...judge.bodies].join(), EMAIL)
    t.match(judge.bodies[0], String.raw`1. Be kind\n2. Never name [EMAIL]`)
    t.equal(parrot.bodies[0]?.includes(String.raw`Be kind\nNever name [EMAIL]`), instruct)
    t.match(parrot.bodies[1], 'Never name [EMAIL]', 'which the plea to write it again quotes')
  }
})

t.test('a pattern that reaches over two rules finds what the model would read', async t => {
  const pattern = (action: FilterAction) => ({ pattern: 'Be kind\\s+Never', action, label: 'two lines' })
  for (const [action, message] of [
    ['block', /^Request blocked by content filter: two lines$/],
    ['redact', /^Alignment plugin: a guardrail's redaction spans more than one rule$/],
  ] as const) {
    start()
    await guard({ contentFilters: [pattern(action)] })
    const reply = await ask(aligned())
    t.equal(reply.status, 403, reply.text)
    t.match(errorOf(reply).message, message)
    nobodyAsked(t)
  }
})

t.test('rules are moderated, as guardrails leave them', async t => {
  await guard({ contentFilterBuiltins: [email('redact')] })
  const body = () => {
    const { plugins, ...rest } = aligned()
    return { ...rest, plugins: [{ id: 'moderation' }, ...plugins] }
  }
  start()
  t.equal((await ask(body())).status, 200)
  t.equal(moderator.bodies.length, 2, 'the request and the rules')
  t.match(moderator.bodies[1], /Never name \[EMAIL\]/)
  start()
  moderator.parts = speaking('{"flagged": true, "categories": ["hate"]}')
  await guard({})
  const { plugins } = body()
  const flagged = await ask({ model: MODEL, input: '', plugins })
  t.equal(flagged.status, 403, flagged.text)
  t.match(errorOf(flagged).message, 'The input was flagged by the moderation plugin')
  t.match(errorOf(flagged), { metadata: { flagged_input: /^Be kind/ } })
  nobodyAsked(t)
})

t.test('rules in which nothing is found are used as they are', async t => {
  await guard({ contentFilterBuiltins: [email('redact')] })
  start()
  const rules = ['Be kind', 'Name no animal']
  const reply = await ask(aligned({ rules }))
  t.equal(reply.status, 200, reply.text)
  t.match(judge.bodies[0], String.raw`1. Be kind\n2. Name no animal`)
  t.match(parrot.bodies[0], String.raw`Be kind\nName no animal`)
})

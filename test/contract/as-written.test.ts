/** What the gateway need not understand goes to the provider as its client wrote it: digits, and the order of names. */
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { FORMATS, parrotRows, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

/** The same on all doors: what a schema says, and what a call had. */
const VALUE = '{"required":["b"],"10":{"minimum":9007199254740993},"2":{"maximum":1.0,"not":1e400},"é":"é"}'
const ARGUMENTS = '{"id":9007199254740993,"10":1.0,"2":[1.50,-0.0]}'
const TEXT = JSON.stringify(ARGUMENTS)
const SCHEMA = `{"type":"object","properties":${VALUE}}`

const DOORS: readonly [path: (model: string) => string, body: (model: string) => string][] = [
  [
    () => '/responses',
    model =>
      `{"model":"${model}","tools":[{"type":"function","name":"f","parameters":${SCHEMA}}],"input":[{"role":"user","content":"Hi"},{"type":"function_call","call_id":"c1","name":"f","arguments":${TEXT}},{"type":"function_call_output","call_id":"c1","output":"x"}]}`,
  ],
  [
    () => '/chat/completions',
    model =>
      `{"model":"${model}","tools":[{"type":"function","function":{"name":"f","parameters":${SCHEMA}}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":${TEXT}}}]},{"role":"tool","tool_call_id":"c1","content":"x"}]}`,
  ],
  [
    () => '/messages',
    model =>
      `{"model":"${model}","max_tokens":9,"tools":[{"name":"f","input_schema":${SCHEMA}}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":${ARGUMENTS}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"}]}]}`,
  ],
  [
    model => `/../v1beta/models/${model}:generateContent`,
    () =>
      `{"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":${SCHEMA}}]}],"contents":[{"role":"user","parts":[{"text":"Hi"}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":${ARGUMENTS}}}]},{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"f","response":{"output":"x"}}}]}]}`,
  ],
]

async function sent(path: string, body: string): Promise<string> {
  const reply = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body,
  })
  const text = await reply.text()
  if (reply.status !== 200) t.fail(`${path}: ${text}`)
  return parrot.bodies.at(-1) ?? ''
}

t.test('schemas and arguments, from every door to every format, twice the same', async t => {
  for (const [path, body] of DOORS) {
    for (const format of FORMATS) {
      const model = `parrot/${format}`
      const first = await sent(path(model), body(model))
      const at = `${path('m')} to ${format}`
      t.ok(first.includes(VALUE), `${at}: the schema in ${first}`)
      t.ok(first.includes(ARGUMENTS) || first.includes(TEXT), `${at}: the arguments in ${first}`)
      t.equal(await sent(path(model), body(model)), first, `${at}: twice the same`)
    }
  }
})

t.test('metadata and unknown fields of the own dialect', async t => {
  const metadata = '{"10":"b","2":"a"}'
  const unknown = '{"10":9007199254740993,"2":1.0}'
  const body = `{"model":"parrot/openai-responses","input":"Hi","metadata":${metadata},"own_field":${unknown}}`
  const text = await sent('/responses', body)
  t.ok(text.includes(metadata), text)
  t.ok(text.includes(unknown), text)
  const chat = `{"model":"parrot/openai-chat","messages":[{"role":"user","content":"Hi"}],"own_field":${unknown}}`
  t.ok((await sent('/chat/completions', chat)).includes(unknown))
})

t.test('a text that two parsers may read differently is written anew', async t => {
  const schema = '{"type":"object","properties":{"a":{"x":1.0},"a":{"x":2}}}'
  const text = await sent(
    '/responses',
    `{"model":"parrot/openai-responses","input":"Hi","tools":[{"type":"function","name":"f","parameters":${schema}}]}`,
  )
  t.match(text, '"properties":{"a":{"x":2}}')
})

t.test('what a field of the gateway is worth stays the same', async t => {
  const text = await sent(
    '/responses',
    `{"model":"parrot/openai-chat","input":"Hi","temperature":1.0,"max_output_tokens":1e3,"metadata":{"1":"x"}}`,
  )
  t.match(text, '"temperature":1,')
  t.match(text, '"max_completion_tokens":1000')
})

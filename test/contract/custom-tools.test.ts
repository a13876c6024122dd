/** Custom tools of the client at every provider: as they are, or as functions with one text argument. */
import { createServer } from 'node:http'
import t from 'tap'
import { readBody } from '../../src/apps/simulator/targets.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { pieces, startParrot } from '../support/provider.ts'

const TOOL = {
  type: 'custom',
  name: 'run_code',
  description: 'Runs code.',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: "print" WORD' },
}

t.test('a call of a custom tool has one form, whatever the provider knows', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  for (const model of ['sim/call', 'sim/chat-call', 'sim/messages-call', 'sim/gemini-call']) {
    const ask = async (fields: object = {}) =>
      await gateway.respond({ model, input: 'Print hello', tools: [TOOL], ...fields })
    const whole = (await (await ask()).json()) as ResponseResource
    t.match(whole.output, [{ type: 'custom_tool_call', name: 'run_code', status: 'completed' }], model)
    const { input } = whole.output[0] as unknown as { input: string }
    t.match(input, /^Print/, model)

    const reply = await ask({ stream: true, debug: { echo_upstream_body: true } })
    const events = parseEventStream(await reply.text())
    t.same(grammarViolations(events), [], model)
    const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
    t.match(response.output, [{ type: 'custom_tool_call', input }], model)
    t.ok(events.some(({ type }) => type === 'response.custom_tool_call_input.done'))
    t.match(JSON.stringify(events[0]), /start: .*print/, `${model}: the grammar goes along`)
    t.match(response.tools, [TOOL], 'the request is echoed as it came')

    const history = [
      { role: 'user', content: 'Print hello' },
      ...whole.output,
      {
        type: 'custom_tool_call_output',
        call_id: (whole.output[0] as { call_id?: string }).call_id,
        output: 'hello',
      },
    ]
    const next = (await (await ask({ input: history })).json()) as ResponseResource
    t.match(JSON.stringify(next.output), /The tool answered: hello/, model)

    const forced = (await (
      await ask({ tool_choice: { type: 'custom', name: 'run_code' } })
    ).json()) as ResponseResource
    t.match(forced.output, [{ type: 'custom_tool_call' }], `${model}: forced`)
    const allowed = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'custom', name: 'run_code' }] }
    const chosen = (await (await ask({ tool_choice: allowed })).json()) as ResponseResource
    t.match(chosen.output, [{ type: 'custom_tool_call' }], `${model}: allowed`)
  }
})

t.test('beside a server tool and a function, each call keeps its kind', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  const tools = [
    TOOL,
    { type: 'gateway:datetime' },
    { type: 'function', name: 'f', parameters: { type: 'object' } },
  ]
  const response = (await (
    await gateway.respond({ model: 'sim/messages-call-2', input: 'Print', tools })
  ).json()) as ResponseResource
  t.same(
    response.output.map(({ type }) => type),
    ['custom_tool_call', 'custom_tool_call'],
  )
})

t.test('the row of a provider says which form custom tools have there', async t => {
  const parrot = await startParrot(t)
  const row = { baseUrl: parrot.url, apiKey: 'k' }
  const ROWS = [
    { slug: 'chat', format: 'openai-chat', takes: false },
    { slug: 'chat-custom', format: 'openai-chat', customTools: true, takes: true },
    { slug: 'responses', format: 'openai-responses', takes: true },
    { slug: 'responses-plain', format: 'openai-responses', customTools: false, takes: false },
    { slug: 'messages', format: 'anthropic-messages', customTools: true, takes: false },
    { slug: 'gemini', format: 'google-gemini', customTools: true, takes: false },
  ] as const
  const gateway = await startGateway({
    providers: ROWS.map(({ takes: _, ...each }) => ({ ...each, ...row })),
    models: ROWS.map(({ slug }) => ({
      id: `acme/${slug}`,
      endpoints: [{ provider: slug, upstreamModel: 'm' }],
    })),
  })
  t.teardown(() => gateway.close())
  const post = async (path: string, body: object) => {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const text = await reply.text()
    if (reply.status !== 200) t.fail(text)
    return text
  }
  const sent = () => parrot.bodies.at(-1) ?? ''
  const calling = (takes: boolean): void => {
    const said = takes ? ['print', ' hello'] : ['{"input":', '"print hello"}']
    parrot.parts = [{ kind: 'call', name: 'run_code', custom: takes, pieces: pieces(...said) }]
  }
  const CALL = { type: 'custom_tool_call', call_id: 'c1', name: 'run_code', input: 'print "a"' }
  const RESULT = { type: 'custom_tool_call_output', call_id: 'c1', output: 'a' }
  const HISTORY = [{ role: 'user', content: 'Print' }, CALL, RESULT]
  const CHAT_TOOL = { type: 'custom', custom: { name: 'run_code', description: 'Runs code.' } }
  const CHAT_HISTORY = [
    { role: 'user', content: 'Print' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c1', type: 'custom', custom: { name: 'run_code', input: 'print "a"' } }],
    },
    { role: 'tool', tool_call_id: 'c1', content: 'a' },
  ]

  for (const { slug, takes } of ROWS) {
    const model = `acme/${slug}`
    calling(takes)
    for (const tool_choice of [
      'auto',
      { type: 'custom', name: 'run_code' },
      { type: 'allowed_tools', mode: 'required', tools: [{ type: 'custom', name: 'run_code' }] },
    ]) {
      const body = { model, input: HISTORY, tools: [TOOL], tool_choice }
      const whole = JSON.parse(await post('/responses', body)) as ResponseResource
      t.match(whole.output, [{ type: 'custom_tool_call', name: 'run_code', input: 'print hello' }], slug)
      t.match(whole.tools, [TOOL], 'the request is echoed as it came')
      t.equal(sent().includes('"custom'), takes, slug)
      t.match(sent(), takes ? /print \\"a\\"/ : /"?input\\?": ?\\?"print/, `${slug}: the call in the history`)

      const events = parseEventStream(await post('/responses', { ...body, stream: true }))
      t.same(grammarViolations(events), [], slug)
      const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
      t.match(response.output, [{ type: 'custom_tool_call', input: 'print hello' }], slug)
    }

    const chat = { model, messages: CHAT_HISTORY, tools: [CHAT_TOOL] }
    const custom = { name: 'run_code', input: 'print hello' }
    const whole = JSON.parse(await post('/chat/completions', chat)) as { choices: [object] }
    t.match(whole.choices, [{ message: { tool_calls: [{ type: 'custom', custom }] } }], slug)
    t.equal(sent().includes('"custom'), takes, slug)
    const stream = await post('/chat/completions', { ...chat, stream: true })
    t.match(stream, /"type":"custom","custom":\{"name":"run_code"/, slug)
    const inputs = [...stream.matchAll(/"custom":\{[^{}]*"input":"([^"]*)"/g)].map(([, input]) => input)
    t.equal(inputs.join(''), 'print hello', slug)

    await post('/responses', { model, input: HISTORY })
    t.equal(sent().includes('"custom'), takes, `${slug}: a call in the history without its tool`)
    if (!takes) t.match(sent(), 'run_code')

    const space = { type: 'namespace', name: 'crm', description: 'd', tools: [TOOL] }
    const name = slug === 'responses' ? 'run_code' : 'crm__run_code'
    parrot.parts = [{ kind: 'call', name, custom: takes, pieces: pieces(takes ? 'x' : '{"input":"x"}') }]
    const inSpace = JSON.parse(
      await post('/responses', { model, input: 'Print', tools: [space] }),
    ) as ResponseResource
    t.match(inSpace.output, [{ type: 'custom_tool_call', name: 'run_code', input: 'x' }], slug)
    t.equal(sent().includes('"custom'), takes, slug)

    const added = { type: 'additional_tools', role: 'developer', tools: [TOOL] }
    await post('/responses', { model, input: [{ role: 'user', content: 'Print' }, added] })
    t.equal(sent().includes('"custom'), takes, `${slug}: a tool that the input adds`)
  }
})

t.test('tokens are counted of the request as the provider would get it', async t => {
  const bodies: string[] = []
  const server = createServer((request, response) => {
    void readBody(request).then(text => {
      bodies.push(text ?? '')
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end('{"input_tokens":41}')
    })
  })
  const { url } = await listening(server, t)
  const gateway = await startGateway({
    providers: [{ slug: 'claudes', format: 'anthropic-messages', baseUrl: url, apiKey: 'k' }],
    models: [{ id: 'acme/m', endpoints: [{ provider: 'claudes' }] }],
  })
  t.teardown(() => gateway.close())
  const reply = await fetch(`${gateway.url}/responses/input_tokens`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/m', input: 'Print', tools: [TOOL] }),
  })
  t.match(await reply.json(), { input_tokens: 41 })
  t.match(bodies, [/run_code/])
})

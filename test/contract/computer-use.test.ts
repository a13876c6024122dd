/** Computer use of a Responses client at providers of other formats, over HTTP: tool, calls, screenshots. */
import t from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'
import { parrotRows, pieces, speaking, startParrot } from '../support/provider.ts'

const parrot = await startParrot(t)
const gateway = await startGateway(parrotRows(parrot.url))
t.teardown(() => gateway.close())

const TOOL = { type: 'computer_use_preview', display_width: 800, display_height: 600, environment: 'linux' }
const IMAGE = 'data:image/png;base64,iVBORw0KGgo='

function respond(format: string, fields: object): Promise<Response> {
  return gateway.respond({ model: `parrot/${format}`, input: 'Look.', tools: [TOOL], ...fields })
}

const sent = () => JSON.parse(parrot.bodies.at(-1) ?? '{}') as Record<string, unknown>

for (const stream of [false, true]) {
  t.test(`Anthropic's calls are items computer_call, ${stream ? 'streamed' : 'whole'}`, async t => {
    const click = '{"action":"left_click","coordinate":[7,8]}'
    parrot.parts = [
      ...speaking('I look.'),
      { kind: 'call', name: 'computer', custom: false, pieces: pieces(click) },
    ]
    const reply = await respond('anthropic-messages', { stream })
    t.equal(reply.status, 200)
    let response: ResponseResource
    if (stream) {
      const events = parseEventStream(await reply.text())
      t.same(grammarViolations(events), [])
      response = (events.at(-1) as StreamEvent & { response: ResponseResource }).response
    } else response = (await reply.json()) as ResponseResource
    t.match(response.output, [
      { type: 'message' },
      {
        type: 'computer_call',
        id: /^cu_/,
        status: 'completed',
        call_id: 'toolu_x1',
        action: { type: 'click', button: 'left', x: 7, y: 8 },
        pending_safety_checks: [],
      },
    ])
    t.match(sent()['tools'], [
      { type: 'computer_20251124', name: 'computer', display_width_px: 800, display_height_px: 600 },
    ])

    parrot.parts = speaking('Seen.')
    const next = await respond('anthropic-messages', {
      tools: [{ type: 'computer' }],
      input: [
        { role: 'user', content: 'Look.' },
        ...response.output,
        {
          type: 'computer_call_output',
          call_id: 'toolu_x1',
          output: { type: 'computer_screenshot', image_url: IMAGE },
        },
      ],
    })
    t.equal(next.status, 200)
    t.match(sent(), {
      tools: [{ type: 'computer_20251124', display_width_px: 1024, display_height_px: 768 }],
      messages: [
        { role: 'user' },
        {
          role: 'assistant',
          content: [
            { type: 'text' },
            { type: 'tool_use', id: 'toolu_x1', name: 'computer', input: JSON.parse(click) },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_x1',
              content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png' } }],
            },
          ],
        },
      ],
    })
  })
}

t.test('a call of several actions goes to Anthropic as one call each', async t => {
  parrot.parts = speaking('Done.')
  const reply = await respond('anthropic-messages', {
    input: [
      { role: 'user', content: 'Go.' },
      {
        type: 'computer_call',
        call_id: 'c1',
        status: 'completed',
        pending_safety_checks: [],
        actions: [{ type: 'move', x: 1, y: 2 }, { type: 'screenshot' }],
      },
      {
        type: 'computer_call_output',
        call_id: 'c1',
        output: { type: 'computer_screenshot', image_url: IMAGE },
      },
    ],
  })
  t.equal(reply.status, 200)
  t.match(sent()['messages'], [
    {},
    {
      content: [
        { id: 'c1', input: { action: 'mouse_move' } },
        { id: 'c1_2', input: { action: 'screenshot' } },
      ],
    },
    {
      content: [
        { tool_use_id: 'c1', content: 'done' },
        { tool_use_id: 'c1_2', content: [{ type: 'image' }] },
      ],
    },
  ])
})

t.test('the call is forced by either spelling, and a function of another name stays a function', async t => {
  const call = (name: string) => ({ kind: 'call', name, custom: false, pieces: pieces('{}') }) as const
  parrot.parts = [call('other'), call('computer')]
  const other = { type: 'function', name: 'other', parameters: { type: 'object', properties: {} } }
  const reply = await respond('anthropic-messages', {
    tools: [{ type: 'computer' }, other],
    tool_choice: { type: 'computer' },
  })
  t.match(await reply.json(), {
    output: [{ type: 'function_call', name: 'other' }, { type: 'computer_call' }],
  })
  t.match(sent()['tool_choice'], { type: 'tool', name: 'computer' })
})

t.test(
  'Responses providers get the tool as it came; others have none: 400 that names the way out',
  async t => {
    parrot.parts = speaking('Hello')
    t.equal((await respond('openai-responses', {})).status, 200)
    t.match(sent()['tools'], [TOOL])
    t.equal((await respond('openai-responses', { tools: [{ type: 'computer' }] })).status, 200)
    t.match(sent()['tools'], [{ type: 'computer' }])
    const asked = parrot.bodies.length
    for (const format of ['openai-chat', 'google-gemini']) {
      const reply = await respond(format, {})
      t.equal(reply.status, 400, format)
      t.match(await reply.json(), {
        error: { message: /^tools\[0\]: only providers that speak .* have computer use/ },
      })
    }
    t.equal(parrot.bodies.length, asked)
  },
)

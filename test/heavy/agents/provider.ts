/**
 * The provider behind the gateway in the tests with real agents. It speaks five formats on one port, and plays one
 * task: it thinks and reads two files at once, edits one, runs a command and answers. Requests beside the task (titles,
 * summaries) get a text.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { READERS, type SimAsk } from '../../../src/apps/simulator/ask.ts'
import {
  type ReplyPart,
  type SimReply,
  type Speaker,
  type Speech,
  tallyOf,
} from '../../../src/apps/simulator/reply.ts'
import { SPEAKERS } from '../../../src/apps/simulator/simulator.ts'
import { parseObject, readBody, targetOf } from '../../../src/apps/simulator/targets.ts'
import { awsEvents } from '../../support/aws-events.ts'
import { listening } from '../../support/listening.ts'
import { FORMATS } from '../../support/provider.ts'
import { converseSpeaker } from './speak-converse.ts'

export const AGENT_FORMATS = [...FORMATS, 'bedrock-converse'] as const
export type AgentFormat = (typeof AGENT_FORMATS)[number]

const AGENT_SPEAKERS: Readonly<Record<AgentFormat, Speaker>> = {
  ...SPEAKERS,
  'bedrock-converse': converseSpeaker,
}

/** A call of one of the program's own tools. */
export interface ScriptedCall {
  readonly name: string
  /** Arguments of a function; a text for a custom tool. */
  readonly input: Readonly<Record<string, unknown>> | string
}

export interface Script {
  /** Calls of each step of the task; behind them comes the answer. @param tools names, as the provider was told them */
  readonly steps: readonly ((tools: readonly string[]) => readonly ScriptedCall[])[]
  readonly answer: string
  /** A text of the tools' results that has to come with the request behind each step. */
  readonly proofs: readonly string[]
  /** The steps that belong to the task have this text in their conversation. */
  readonly mark: string
}

/** Things that go wrong, or get large, by the number of the step. */
export interface Trouble {
  /** The first provider refuses from this step on; another one takes over. */
  readonly failsAt?: number
  /** The reply to this step stops behind its first token. */
  readonly hangsAt?: number
  /** The reply of the first provider to this step breaks behind its first token; another one goes on. */
  readonly breaksAt?: number
  /** The reply to this step says that the prompt was so large. */
  readonly fillsAt?: { readonly step: number; readonly inputTokens: number }
}

export interface Told {
  readonly format: AgentFormat
  readonly provider: string
  readonly input: number
  readonly output: number
}

/** The name by which a program's search for tools is called. */
export const SEARCH = 'tool_search'
const THOUGHT = 'The notes come first.'
/** Bedrock has two APIs: Converse, and InvokeModel, which speaks the Messages API for Claude. */
const BEDROCK_PATH = /^\/model\/(.+)\/(converse|invoke)(-stream|-with-response-stream)?$/
/** Requests for summaries of the conversation, by their words in each program. */
const SUMMARY =
  /CONTEXT CHECKPOINT|detailed summary|state_snapshot|anchored summary|Summarize the conversation|concise summary of our conversation|provide a detailed|compress/i

/** One run of a program: the steps so far, and what was told. */
export class Play {
  readonly script: Script
  readonly trouble: Trouble
  step = 0
  readonly told: Told[] = []
  readonly faults: string[] = []
  /** Texts of all bodies, and of those at other providers. */
  readonly bodies: string[] = []
  /** Signatures of thoughts that were told, and those of them that came back. */
  readonly signatures: string[] = []
  thoughtsBack = 0
  /** Summaries that were asked for. */
  summaries = 0
  refused = 0
  hung = 0
  /** The text before which a reply broke; null: none has. */
  broken: string | null = null
  closedEarly = 0
  #wake: (() => void) | null = null

  constructor(script: Script, trouble: Trouble) {
    this.script = script
    this.trouble = trouble
  }

  /** Resolves as soon as a reply hangs. */
  async hangs(): Promise<void> {
    if (this.hung > 0) return
    await new Promise<void>(done => {
      this.#wake = done
    })
  }

  hang(): void {
    this.hung++
    this.#wake?.()
  }
}

export interface AgentProvider {
  readonly url: string
  play: Play
  close(): void
}

export async function startAgentProvider(name: string, first: Play): Promise<AgentProvider> {
  const provider = { url: '', play: first, close: (): void => undefined }
  let count = 0
  const server = createServer((request, response) => {
    const { play } = provider
    answer(request, response, { name, play, id: `${name}${++count}` }).catch((error: unknown) => {
      play.faults.push(`the provider fell over: ${String(error)}`)
      response.destroy()
    })
  })
  provider.url = (await listening(server)).url
  provider.close = () => {
    server.close()
    server.closeAllConnections()
  }
  return provider
}

interface Turn {
  readonly name: string
  readonly play: Play
  readonly id: string
}

async function answer(request: IncomingMessage, response: ServerResponse, turn: Turn): Promise<void> {
  const { play } = turn
  const text = (await readBody(request)) ?? ''
  const body = parseObject(text) ?? {}
  const bedrock = BEDROCK_PATH.exec(decodeURIComponent(request.url ?? ''))
  const target =
    bedrock === null
      ? targetOf('POST', request.url ?? '')
      : {
          format: bedrock[2] === 'invoke' ? ('anthropic-messages' as const) : ('bedrock-converse' as const),
          model: bedrock[1] ?? '',
          stream: bedrock[3] !== undefined,
        }
  const { format } = target
  if (/countTokens|count_tokens|count-tokens/.test(request.url ?? '')) {
    send(response, 200, { totalTokens: 100, input_tokens: 100, inputTokens: 100 })
    return
  }
  if (format === null || !isAgentFormat(format)) {
    play.faults.push(`the provider was asked for ${request.method} ${request.url}`)
    send(response, 404, {})
    return
  }
  play.bodies.push(text)
  const read = format === 'bedrock-converse' ? converseAsk(body, target) : READERS[format](body, target)
  const ask = bedrock === null ? read : { ...read, stream: target.stream }
  const speaker = AGENT_SPEAKERS[format]
  const kind = kindOf(ask, text, play)
  const { trouble, script } = play
  if (
    kind === 'task' &&
    turn.name === 'first' &&
    trouble.failsAt !== undefined &&
    play.step >= trouble.failsAt
  ) {
    play.refused++
    send(response, 503, speaker.failure({ status: 503, message: 'Scripted outage' }))
    return
  }
  const { step } = play
  if (kind === 'summary') play.summaries++
  if (kind === 'task') seen(play, text)
  const goesOn = kind === 'task' && play.broken !== null
  if (goesOn && !text.includes(play.broken ?? ''))
    play.faults.push('it was not asked to go on with the text so far')
  const reply = goesOn
    ? saying(script.answer.slice(play.broken?.length))
    : kind === 'task'
      ? stepReply(play, ask)
      : saying(kind === 'summary' ? SUMMARY_TEXT : 'Tea')
  const counted = tallyOf(reply, Math.max(1, ask.inputTokens))
  const fills = kind === 'task' && trouble.fillsAt?.step === step ? trouble.fillsAt : undefined
  const tally = fills === undefined ? counted : { ...counted, input: fills.inputTokens }
  const speech: Speech = { ask, reply, tally, id: turn.id, createdSeconds: 1_700_000_000 }
  const hangs = kind === 'task' && trouble.hangsAt === step
  const breaks = kind === 'task' && turn.name === 'first' && trouble.breaksAt === step
  response.on('close', () => {
    if (!response.writableFinished) play.closedEarly++
  })
  // What the gateway has to write down; the run looks at it once the program has ended.
  if (!hangs && !breaks)
    play.told.push({ format, provider: turn.name, input: tally.input, output: tally.output })
  if (kind === 'task' && !hangs && !breaks) play.step = Math.min(play.step + 1, script.steps.length)
  const withSearches = format === 'openai-responses' ? new Searches(body) : null
  if (!ask.stream) {
    const whole = speaker.whole(speech)
    send(response, 200, signed(withSearches?.document(whole) ?? whole, format, turn.id, play))
    return
  }
  const frames = [...speaker.frames(speech)].map(frame => ({
    ...frame,
    text: withSearches?.frame(frame.text) ?? frame.text,
  }))
  const cut =
    hangs || breaks ? frames.slice(0, frames.findIndex(frame => frame.kind === 'token') + 1) : frames
  const written = cut.map(frame => signedFrame(frame.text, format, turn.id, play)).join('')
  const isAws = bedrock !== null
  response.writeHead(200, {
    'content-type': isAws ? 'application/vnd.amazon.eventstream' : 'text/event-stream',
  })
  response.write(
    isAws ? Buffer.concat(awsEvents(format === 'bedrock-converse' ? written : chunks(written))) : written,
  )
  if (hangs) play.hang()
  else if (breaks) {
    play.broken = script.answer.slice(0, script.answer.length >> 1)
    // What is destroyed with the connection would never arrive.
    response.write(isAws ? Buffer.alloc(0) : ': broken\n\n', () => setImmediate(() => response.destroy()))
  } else response.end()
}

/**
 * Responses has calls of its own for searches among tools, and calls of the tools that were found name their namespace;
 * the other formats have functions for all of this.
 */
class Searches {
  readonly #namespaces = new Map<string, unknown>()
  /** Ids of calls that are searches. */
  readonly #ids = new Set<unknown>()

  constructor(body: Fields) {
    for (const { type, tools } of listOf(body['input']))
      for (const found of type === 'tool_search_output' ? listOf(tools) : [])
        for (const { name } of listOf(found['tools'])) this.#namespaces.set(String(name), found['name'])
  }

  document(whole: unknown): unknown {
    const { output } = fieldsOf(whole)
    return { ...fieldsOf(whole), output: listOf(output).map(item => this.#item(item)) }
  }

  /** An event; empty for pieces of a search's arguments, which come only as a whole. */
  frame(text: string): string {
    const [, head = '', data = ''] = /^(event: .*\ndata: )(\{.*\})\n\n$/s.exec(text) ?? []
    if (data === '') return text
    const event = fieldsOf(JSON.parse(data))
    const { item, response } = event
    if (item !== undefined)
      return `${head}${JSON.stringify({ ...event, item: this.#item(fieldsOf(item)) })}\n\n`
    if (response !== undefined)
      return `${head}${JSON.stringify({ ...event, response: this.document(response) })}\n\n`
    return this.#ids.has(event['item_id']) ? '' : text
  }

  #item(item: Fields): Fields {
    const { id, type, name, call_id, status } = item
    if (type !== 'function_call') return item
    const namespace = this.#namespaces.get(String(name))
    if (namespace !== undefined) return { ...item, namespace }
    if (name !== SEARCH) return item
    this.#ids.add(id)
    const words = String(item['arguments'] ?? '')
    const input: unknown = words === '' ? {} : JSON.parse(words)
    return { type: 'tool_search_call', id, call_id, status, execution: 'client', arguments: input }
  }
}

/** Events of the Messages API as InvokeModel tells them. */
function chunks(text: string): string {
  return text.replace(/^event: .*\ndata: (.*)$/gm, (_, data: string) => {
    const bytes = Buffer.from(data).toString('base64')
    return `event: chunk\ndata: ${JSON.stringify({ bytes })}`
  })
}

function isAgentFormat(format: string): format is AgentFormat {
  return (AGENT_FORMATS as readonly string[]).includes(format)
}

const GOES_ON = 'FINISH the note'
const SUMMARY_TEXT = `<state_snapshot><summary>The task goes on: ${GOES_ON} about the tea.</summary></state_snapshot>`

type Kind = 'task' | 'summary' | 'beside'

function kindOf(ask: SimAsk, text: string, { script }: Play): Kind {
  const said = `${ask.system.slice(0, 400)}\n${ask.lastUser}`
  const isTask = [script.mark, GOES_ON].some(words => ask.lastUser.includes(words))
  if (SUMMARY.test(ask.lastUser) && !isTask) return 'summary'
  if (ask.tools.length === 0) return SUMMARY.test(said) ? 'summary' : 'beside'
  return text.includes(script.mark) || text.includes(GOES_ON) ? 'task' : 'beside'
}

/** Checks that results and thoughts have come back. */
function seen(play: Play, text: string): void {
  const { script, step } = play
  const proof = step === 0 ? undefined : script.proofs[step - 1]
  if (proof !== undefined && play.summaries === 0 && !text.includes(proof))
    play.faults.push(`step ${step}: the result with ${proof} did not come back`)
  const back = play.signatures.filter(signature => text.includes(signature)).length
  play.thoughtsBack = Math.max(play.thoughtsBack, back)
}

function stepReply({ script, step }: Play, ask: SimAsk): SimReply {
  const names = ask.tools.map(({ name }) => name)
  const calls = script.steps[step]?.(names)
  if (calls === undefined) return saying(script.answer)
  const parts: ReplyPart[] = calls.map(({ name, input }) => {
    const custom = ask.tools.find(tool => tool.name === name)?.custom ?? false
    // Where a custom tool is a function, its text is the only argument.
    const said =
      typeof input !== 'string' ? JSON.stringify(input) : custom ? input : JSON.stringify({ input })
    return { kind: 'call', name, custom, pieces: pieces(said) }
  })
  const thought: ReplyPart = { kind: 'reasoning', form: 'text', pieces: pieces(THOUGHT) }
  return { parts: step === 0 ? [thought, ...parts] : parts, finish: 'calls', paceMs: 0 }
}

function saying(text: string): SimReply {
  return { parts: [{ kind: 'text', pieces: pieces(text) }], finish: 'stop', paceMs: 0 }
}

/** Cut where it hurts: in the middle. */
function pieces(text: string) {
  const list = [text.slice(0, text.length >> 1), text.slice(text.length >> 1)].filter(Boolean)
  return { tokens: list.length, each: () => list }
}

/** Gemini signs its calls; the speakers of the others sign their thoughts by themselves. */
function signed(document: unknown, format: AgentFormat, id: string, play: Play): unknown {
  const text = signedFrame(JSON.stringify(document), format, id, play)
  return JSON.parse(text)
}

function signedFrame(text: string, format: AgentFormat, id: string, play: Play): string {
  const signature = Buffer.from(`signed by ${id}`).toString('base64')
  if (format === 'google-gemini') {
    if (!text.includes('"functionCall"') || play.signatures.includes(signature)) return text
    play.signatures.push(signature)
    return text.replace('{"functionCall"', `{"thoughtSignature":"${signature}","functionCall"`)
  }
  if (format === 'openai-responses') {
    const sealed = /"encrypted_content":"([^"]+)"/.exec(text)?.[1]
    if (sealed !== undefined && !play.signatures.includes(sealed)) play.signatures.push(sealed)
  } else if (text.includes(signature) && !play.signatures.includes(signature)) play.signatures.push(signature)
  return text
}

function send(response: ServerResponse, status: number, document: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(document))
}

type Fields = Readonly<Record<string, unknown>>
const fieldsOf = (value: unknown): Fields =>
  value !== null && typeof value === 'object' ? (value as Fields) : {}
const listOf = (value: unknown): readonly Fields[] => (Array.isArray(value) ? value.map(fieldsOf) : [])
const words = (text: string): number => text.split(/\s+/).filter(Boolean).length

function converseAsk(body: Fields, target: { readonly model: string; readonly stream: boolean }): SimAsk {
  const textOf = (blocks: unknown): string =>
    listOf(blocks)
      .map(block => (typeof block['text'] === 'string' ? block['text'] : ''))
      .join('')
  const system = textOf(body['system'])
  const messages = listOf(body['messages'])
  const said = messages
    .filter(message => message['role'] === 'user')
    .map(message => textOf(message['content']))
  const tools = listOf(fieldsOf(body['toolConfig'])['tools']).flatMap(tool => {
    const name = fieldsOf(tool['toolSpec'])['name']
    return typeof name === 'string' ? [{ name, schema: {}, custom: false }] : []
  })
  return {
    ...target,
    system,
    lastUser: said.findLast(text => text !== '') ?? '',
    toolOutputs: [],
    tools,
    json: null,
    maxTokens: null,
    inputTokens: words(system) + words(said.join(' ')),
    streamUsage: true,
    body,
  }
}

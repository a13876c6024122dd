/**
 * Extracts what a model said from a Messages reply, in the vocabulary that all dialects share (said.ts), and reports
 * faults of a stream. Knows only the public shapes. Pure.
 */
import { type Fields, failed, fields, framesOf, isFailure, list, type Said, type Told, text } from './said.ts'

/** @throws SyntaxError when a frame or body is no JSON */
export function saidInMessages(told: Told): Said {
  if (isFailure(told)) return failed(told)
  if (!told.streamed) return saidInMessage(fields(JSON.parse(told.body)))
  const content: Record<string, unknown>[] = []
  let end: Fields = {}
  let error: string | null = null
  for (const event of framesOf(told.body)) {
    const index = Number(event['index'])
    const delta = fields(event['delta'])
    const block = content[index]
    if (event['type'] === 'content_block_start') content[index] = { ...fields(event['content_block']) }
    else if (event['type'] === 'content_block_delta' && block !== undefined) {
      for (const name of ['text', 'thinking', 'partial_json'])
        if (name in delta) block[name] = text(block[name]) + text(delta[name])
    } else if (event['type'] === 'message_delta') end = { ...delta, usage: event['usage'] }
    else if (event['type'] === 'error') {
      error = text(fields(event['error'])['message'])
      end = { usage: event['usage'] }
    }
  }
  const answer = saidInMessage({ ...end, content })
  return error === null ? answer : { ...answer, finish: 'error', error }
}

function saidInMessage(message: Fields): Said {
  const content = list(message['content'])
  const usage = message['usage'] == null ? null : fields(message['usage'])
  const read = ['input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens'].map(name =>
    Number(usage?.[name]),
  )
  const input = read.reduce((sum, tokens) => sum + tokens, 0)
  const output = Number(usage?.['output_tokens'])
  return {
    text: content.map(block => (block['type'] === 'text' ? text(block['text']) : '')).join(''),
    reasoning: content
      .flatMap(block =>
        block['type'] === 'thinking' && block['thinking'] !== '' ? [text(block['thinking'])] : [],
      )
      .join('\n\n'),
    refusal: text(fields(message['stop_details'])['explanation']),
    calls: content
      .filter(block => block['type'] === 'tool_use')
      .map(block => ({
        name: text(block['name']),
        text: 'partial_json' in block ? text(block['partial_json']) : JSON.stringify(block['input']),
      })),
    usage: Number.isNaN(input) ? null : [input, output, input + output],
    finish: STOPS[text(message['stop_reason'])] ?? 'none',
    error: null,
  }
}

const STOPS: Readonly<Record<string, Said['finish']>> = {
  end_turn: 'stop',
  stop_sequence: 'stop',
  pause_turn: 'stop',
  tool_use: 'tool_calls',
  max_tokens: 'length',
  model_context_window_exceeded: 'length',
  refusal: 'content_filter',
}

/**
 * The same in the words that Messages has: the input of a call is an object, into which the text of a custom tool's
 * call goes as `input`, and a refusal is the end of a message.
 */
export function asMessagesSay(said: Said): Said {
  return {
    ...said,
    calls: said.calls.map(({ name, text }) => ({ name, text: inputText(text) })),
    finish: said.refusal !== '' && said.finish === 'stop' ? 'content_filter' : said.finish,
  }
}

function inputText(json: string): string {
  if (json === '') return '{}'
  let value: unknown
  try {
    value = JSON.parse(json)
  } catch {
    return json
  }
  const object = fields(value)
  const [only, ...others] = Object.entries(object)
  const isWrapped = others.length === 0 && (only?.[0] === 'input' || only?.[0] === 'arguments')
  return isWrapped && typeof only?.[1] === 'string' ? inputText(only[1]) : JSON.stringify(value)
}

/** What is wrong with the order of a Messages stream; empty: nothing. */
export function messagesStreamFlaws(told: Told): readonly string[] {
  if (!told.streamed || isFailure(told)) return []
  const flaws: string[] = []
  const frames = told.body.split(/\n{2,}/).filter(one => one.startsWith('event: '))
  const events = frames.map(one => {
    const [, name, data] = /^event: (\S+)\ndata: (.*)$/.exec(one) ?? []
    const event = fields(JSON.parse(data ?? 'null'))
    if (event['type'] !== name) flaws.push('an event has another name than its type')
    return event
  })
  const types = events.map(event => text(event['type']))
  const isFailed = types.at(-1) === 'error'
  if (types[0] !== 'message_start' && !(isFailed && types.length === 1))
    flaws.push('the stream does not begin with message_start')
  if (types.filter(type => type === 'message_start').length > 1) flaws.push('the message begins twice')
  if (!isFailed && types.slice(-2).join() !== 'message_delta,message_stop')
    flaws.push('the stream does not end with message_delta and message_stop')
  if (told.body.includes('[DONE]')) flaws.push('the stream ends with [DONE]')
  flaws.push(...blockFlaws(events, isFailed))
  return [...new Set(flaws)]
}

/** One block after the other, numbered from 0. */
function blockFlaws(events: readonly Fields[], isFailed: boolean): string[] {
  const flaws: string[] = []
  let next = 0
  let open = false
  for (const event of events) {
    const { type, index } = event
    if (type === 'content_block_start') {
      if (open || index !== next) flaws.push('a block begins out of turn')
      open = true
    } else if (type === 'content_block_delta') {
      if (!open || index !== next) flaws.push('a delta is of no open block')
    } else if (type === 'content_block_stop') {
      if (!open || index !== next) flaws.push('a block ends out of turn')
      open = false
      next++
    }
  }
  if (open && !isFailed) flaws.push('a block does not end')
  return flaws
}

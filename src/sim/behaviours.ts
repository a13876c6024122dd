/**
 * How the models of the simulated provider answer. The behaviour is chosen by the model's name, its numbers
 * follow after dashes: `write-200-20` writes 200 tokens, one each 20 ms. Pure. SIM_MODELS lists them all.
 */
import type { Ask } from './ask.ts'
import { exampleOf } from './example.ts'
import { probabilities, VERDICT_SCHEMA } from './judge.ts'
import { piecesOf, type Reply, type ReplyPart, saying, writtenPieces } from './reply.ts'

export interface SimModel {
  /** The name before any number. */
  readonly name: string
  /** Numbers that may follow, in order, with what they are when left out. */
  readonly numbers: readonly { readonly name: string; readonly byDefault: number; readonly max: number }[]
  readonly does: string
}

const PACE = { name: 'ms before each token', byDefault: 0, max: 60_000 } as const

/** Every model that answers. */
export const SIM_MODELS = [
  { name: 'echo', numbers: [PACE], does: 'repeats the last user text' },
  {
    name: 'write',
    numbers: [{ name: 'tokens', byDefault: 200, max: 10_000_000 }, PACE],
    does: 'writes a text of so many tokens; at pace 0 as fast as the reader takes it',
  },
  {
    name: 'call',
    numbers: [{ name: 'calls', byDefault: 1, max: 16 }],
    does: 'calls the first tool so many times in parallel, then answers with the outputs',
  },
  { name: 'reason', numbers: [PACE], does: 'thinks in raw text, then answers' },
  { name: 'reason-summary', numbers: [PACE], does: 'shows a summary of its thinking, then answers' },
  { name: 'refuse', numbers: [], does: 'refuses' },
  { name: 'json', numbers: [], does: 'answers with a document that fits the JSON schema asked for' },
  { name: 'judge', numbers: [], does: 'answers an alignment verdict (see judge.ts)' },
  { name: 'judge-fenced', numbers: [], does: 'the same verdict in a code fence with prose around it' },
  { name: 'judge-short', numbers: [], does: 'a verdict with one number too few' },
] as const satisfies readonly SimModel[]

export type SimModelName = (typeof SIM_MODELS)[number]['name']

const ANSWERS: Readonly<Record<SimModelName, (ask: Ask, numbers: readonly number[]) => Reply>> = {
  echo: (ask, [paceMs = 0]) => saying(heard(ask), paceMs),
  write: (_, [tokens = 0, paceMs = 0]) => ({
    parts: [{ kind: 'text', pieces: writtenPieces(tokens) }],
    finish: 'stop',
    paceMs,
  }),
  call: (ask, [calls = 1]) => called(ask, calls),
  reason: (ask, [paceMs = 0]) => reasoned(ask, 'text', paceMs),
  'reason-summary': (ask, [paceMs = 0]) => reasoned(ask, 'summary', paceMs),
  refuse: () => ({
    parts: [{ kind: 'refusal', pieces: piecesOf('I cannot help with that request.') }],
    finish: 'refusal',
    paceMs: 0,
  }),
  json: ask => saying(document(ask)),
  judge: ask => saying(verdict(ask, all => all)),
  'judge-fenced': ask =>
    saying(`Here is my verdict:\n\`\`\`json\n${verdict(ask, all => all)}\n\`\`\`\nThat is all.`),
  'judge-short': ask => saying(verdict(ask, all => all.slice(1))),
}

/** Finds the behaviour of a model name; null when there is none of that name. */
export function behaviourOf(model: string): ((ask: Ask) => Reply) | null {
  const match = /^([a-z]+(?:-[a-z]+)*)((?:-\d{1,8})*)$/.exec(model)
  if (match === null) return null
  const known = SIM_MODELS.find(row => row.name === match[1])
  if (known === undefined) return null
  const given = (match[2] ?? '').split('-').slice(1).map(Number)
  if (given.length > known.numbers.length) return null
  const numbers = known.numbers.map((number, at) => Math.min(given[at] ?? number.byDefault, number.max))
  return ask => ANSWERS[known.name](ask, numbers)
}

function heard(ask: Ask): string {
  return ask.lastUser === '' ? '(nothing was said)' : ask.lastUser
}

function firstWord(text: string): string {
  return /[\p{L}\p{N}]+/u.exec(text)?.[0] ?? 'something'
}

function called(ask: Ask, calls: number): Reply {
  const tool = ask.tools[0]
  if (ask.toolOutputs.length > 0) return saying(`The tool answered: ${ask.toolOutputs.join(' and ')}`)
  if (tool === undefined) return saying('There is no tool that may be called.')
  const input = tool.custom ? heard(ask) : JSON.stringify(exampleOf(tool.schema, firstWord(ask.lastUser)))
  const call: ReplyPart = { kind: 'call', name: tool.name, custom: tool.custom, pieces: piecesOf(input) }
  return { parts: Array.from({ length: calls }, () => call), finish: 'calls', paceMs: 0 }
}

function reasoned(ask: Ask, form: 'text' | 'summary', paceMs: number): Reply {
  const thought = `They said something of ${ask.lastUser.length} characters. Repeating it is the right answer.`
  return {
    parts: [
      { kind: 'reasoning', form, pieces: piecesOf(thought) },
      { kind: 'text', pieces: piecesOf(heard(ask)) },
    ],
    finish: 'stop',
    paceMs,
  }
}

function document(ask: Ask): string {
  if (ask.json === null || Object.keys(ask.json.schema).length === 0)
    return JSON.stringify({ answer: heard(ask) })
  return JSON.stringify(exampleOf(ask.json.schema, firstWord(ask.lastUser)))
}

function verdict(ask: Ask, pick: (all: readonly number[]) => readonly number[]): string {
  // A format without named schemas still asks for a document; anything else was not meant for a judge.
  if (ask.json === null || (ask.json.name !== VERDICT_SCHEMA && ask.json.name !== '')) return document(ask)
  return JSON.stringify({ probabilities: pick(probabilities(ask.system, ask.lastUser)) })
}

/**
 * Habits of providers, from test/fixtures/habits: replies that say one thing in the ways in which known servers say it.
 * Each file has a habit in several formats, streamed and whole, and what a reader has to understand.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FormatName } from '../../src/protocol/provider.ts'
import { awsMessage } from './aws-events.ts'

const FOLDER = join(import.meta.dirname, '../fixtures/habits')

export interface Expected {
  /** Name, arguments (as JSON, or as text where they are none), and the status of a call that was cut. */
  readonly calls?: readonly (readonly [name: string, input: unknown, status?: 'incomplete'])[]
  readonly text?: string
  /** The reason of the finish, or `failed`. */
  readonly end: string
  /** Of a failure: the gateway's code, and words of the provider. */
  readonly code?: string
  readonly words?: string
  /** Input, cached and output tokens. */
  readonly usage?: readonly [number, number, number]
  readonly stopSequence?: string
  /** A word that stands for no id. */
  readonly noId?: string
}

export interface Habit {
  readonly name: string
  readonly format: Exclude<FormatName, `${string}embeddings`>
  readonly isStream: boolean
  /** The frames of a stream, or the one document. */
  readonly frames: readonly unknown[]
  readonly bytes: Buffer
  readonly expect: Expected
}

interface Reply {
  readonly format: Habit['format']
  readonly stream?: readonly unknown[]
  readonly whole?: unknown
  readonly expect?: Partial<Expected>
}

interface HabitFile {
  readonly what: string
  readonly expect: Expected
  readonly replies: readonly Reply[]
}

export function habits(): readonly Habit[] {
  return readdirSync(FOLDER)
    .filter(file => file.endsWith('.json'))
    .toSorted()
    .flatMap(file => {
      const { expect, replies } = JSON.parse(readFileSync(join(FOLDER, file), 'utf8')) as HabitFile
      return replies.map((reply, at) => ({
        name: `${file.replace('.json', '')} ${at}, ${reply.format}${reply.stream === undefined ? '' : ', streamed'}`,
        format: reply.format,
        isStream: reply.stream !== undefined,
        frames: reply.stream ?? [reply.whole],
        bytes: bytesOf(reply.format, reply.stream !== undefined, reply.stream ?? [reply.whole]),
        expect: { ...expect, ...reply.expect },
      }))
    })
}

/** As the provider sends them. */
export function bytesOf(format: Habit['format'], isStream: boolean, frames: readonly unknown[]): Buffer {
  if (!isStream) return Buffer.from(JSON.stringify(frames[0]) ?? 'null')
  if (format !== 'bedrock-converse') return Buffer.from(frames.map(frame).join(''))
  return Buffer.concat(
    frames.map(event => {
      const [type, fields] = Array.isArray(event) ? (event as unknown[]) : ['metadata', event]
      // A header of AWS holds no more.
      return awsMessage(String(type).slice(0, 10_000), JSON.stringify(fields) ?? 'null')
    }),
  )
}

/** A text stands as it is; an event has its name where the format gives it one. */
function frame(event: unknown): string {
  if (typeof event === 'string') return event.includes(':') ? event : `data: ${event}\n\n`
  const { type } = (event ?? {}) as { type?: unknown }
  const name = typeof type === 'string' ? `event: ${type}\n` : ''
  return `${name}data: ${JSON.stringify(event)}\n\n`
}

/** Calls between the main thread and the others: the list of channels, and what each one carries. */

import type { MetricSnapshot } from '../../base/metrics/exposition.ts'
import type { Call, CallAnswer } from '../../base/thread-rpc.ts'
import type { CounterAnswer, CounterQuestion } from '../../callers/limits/counter-channel.ts'
import type { SandboxAnswer, SandboxQuestion } from '../../features/sandbox/channel.ts'
import type { PinAnswer, PinQuestion } from '../../storage/session-affinity/affinity-channel.ts'

/** Kept by the main thread for all threads, by name: the questions of threads, and its answers. */
interface Channels {
  readonly counters: { readonly question: CounterQuestion; readonly answer: CounterAnswer }
  readonly pins: { readonly question: PinQuestion; readonly answer: PinAnswer }
  readonly sandbox: { readonly question: SandboxQuestion; readonly answer: SandboxAnswer }
}
type ChannelName = keyof Channels
type Calls<Name extends ChannelName> = readonly Call<Channels[Name]['question']>[]
type Answers<Name extends ChannelName> = readonly CallAnswer<Channels[Name]['answer']>[]

/** All calls that a thread makes on one channel in one turn of its event loop. */
export type ChannelCalls = {
  [Name in ChannelName]: { readonly channel: Name; readonly calls: Calls<Name> }
}[ChannelName]

export type ChannelAnswers = {
  [Name in ChannelName]: { readonly channel: Name; readonly answers: Answers<Name> }
}[ChannelName]

/** The ends of all channels in a thread, or the ends that the main thread has for it. */
export type ChannelEnds<Side extends 'asks' | 'answers'> = {
  readonly [Name in ChannelName]: {
    receive(messages: Side extends 'asks' ? Answers<Name> : Calls<Name>): void
  }
}

/** A question of the supervisor to a thread. */
export type ThreadQuestion =
  | { readonly kind: 'metrics' }
  /** The certificate files have changed to this version; asks if the thread uses it. False: the previous one stays. */
  | { readonly kind: 'certificate'; readonly version: string }
  /** The interface description as JSON; null if nothing is served. */
  | { readonly kind: 'describe' }

export type ThreadAnswer = MetricSnapshot | boolean | string | null

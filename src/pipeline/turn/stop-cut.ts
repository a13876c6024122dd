/**
 * Stop sequences that the provider does not get, because its format has none or it takes fewer: the gateway ends the
 * text before them. A piece of text waits while it may be the beginning of a sequence, over any borders of pieces. Hot
 * path of replies with such sequences; others have none of it.
 */
import type { Content } from '../answer/answer.ts'
import type { AttemptTarget } from './attempt-target.ts'

/** The attempt whose reply is cut. */
export interface StoppedReply {
  /** Ends the reply after this delta, because of a sequence. */
  stopAt(sequence: string): void
}

type Text = Extract<Content, { kind: 'text' }>

/** A state of the search: the longest end of the text that begins a sequence. */
interface State {
  readonly next: Map<number, State>
  /** Characters of this beginning. */
  readonly length: number
  /** The state for the next shorter end of the text. */
  shorter: State | null
  /** Characters of the longest sequence that ends here; 0: none does. */
  matchLength: number
}

/** Finds the first of many sequences in a text that comes in pieces, in one pass (Aho and Corasick). */
export class StopSearch {
  readonly #start: State = { next: new Map(), length: 0, shorter: null, matchLength: 0 }
  #state = this.#start

  constructor(sequences: readonly string[]) {
    for (const sequence of sequences) this.#add(sequence)
    this.#link()
  }

  /** Characters at the end of the text that may begin a sequence. */
  get waitingChars(): number {
    return this.#state.length
  }

  /** Null if no stop sequence ends in the piece. `end`: its end in the piece. `length`: the length of the sequence. */
  read(piece: string): { readonly end: number; readonly length: number } | null {
    for (let index = 0; index < piece.length; index++) {
      const code = piece.charCodeAt(index)
      let state: State | null = this.#state
      while (state !== null && !state.next.has(code)) state = state.shorter
      this.#state = state?.next.get(code) ?? this.#start
      const { matchLength } = this.#state
      if (matchLength > 0) return { end: index + 1, length: matchLength }
    }
    return null
  }

  /** Begins a new text. */
  reset(): void {
    this.#state = this.#start
  }

  #add(sequence: string): void {
    let state = this.#start
    for (let index = 0; index < sequence.length; index++) {
      const code = sequence.charCodeAt(index)
      let next = state.next.get(code)
      if (next === undefined) {
        next = { next: new Map(), length: index + 1, shorter: this.#start, matchLength: 0 }
        state.next.set(code, next)
      }
      state = next
    }
    state.matchLength = sequence.length
  }

  /** By length, so that shorter states are linked before longer ones. */
  #link(): void {
    const queue = [...this.#start.next.values()]
    for (const state of queue) {
      for (const [code, next] of state.next) {
        let shorter = state.shorter
        while (shorter !== null && !shorter.next.has(code)) shorter = shorter.shorter
        next.shorter = shorter?.next.get(code) ?? this.#start
        if (next.matchLength === 0) next.matchLength = next.shorter.matchLength
        queue.push(next)
      }
    }
  }
}

/** Passes a reply on to its target, up to a stop sequence in one of its messages. One per attempt. */
export class StopCut implements AttemptTarget {
  readonly sink: AttemptTarget['sink']
  readonly #reply: StoppedReply
  readonly #target: AttemptTarget
  readonly #search: StopSearch
  /** Deltas that wait, and the characters of their texts. */
  #held: Content[] = []
  #heldChars = 0
  /** The message whose text is searched. */
  #item = -1
  #isStopped = false

  constructor(sequences: readonly string[], reply: StoppedReply, target: AttemptTarget) {
    this.sink = target.sink
    this.#search = new StopSearch(sequences)
    this.#reply = reply
    this.#target = target
  }

  receive(delta: Content): void {
    if (this.#isStopped) return
    if (delta.kind === 'text') this.#text(delta)
    // An annotation waits with its text.
    else if (this.#held.length > 0 && delta.kind === 'annotation') this.#held.push(delta)
    else {
      this.#release(0)
      this.#search.reset()
      this.#target.receive(delta)
    }
  }

  end(done: () => void): void {
    this.#release(0)
    this.#target.end(done)
  }

  close(): void {
    this.#held = []
    this.#target.close()
  }

  #text(delta: Text): void {
    if (delta.item !== this.#item) {
      this.#release(0)
      this.#search.reset()
      this.#item = delta.item
    }
    const match = this.#search.read(delta.text)
    this.#held.push(delta)
    this.#heldChars += delta.text.length
    if (match === null) this.#release(this.#search.waitingChars)
    else this.#stop(this.#heldChars - delta.text.length + match.end, match.length)
  }

  /** Passes on the waiting deltas, except those with the last `waitingChars` characters. */
  #release(waitingChars: number): void {
    let count = 0
    while (count < this.#held.length && this.#heldChars - charsOf(this.#held[count]) >= waitingChars) {
      this.#heldChars -= charsOf(this.#held[count])
      count++
    }
    if (count === 0) return
    for (const delta of this.#held.splice(0, count)) this.#target.receive(delta)
  }

  /**
   * Passes on the text before a sequence, and ends the reply there. `end`: the characters that wait, up to the end of
   * the sequence.
   */
  #stop(end: number, length: number): void {
    this.#isStopped = true
    let charsLeft = end - length
    let sequence = ''
    for (const delta of this.#held) {
      if (delta.kind !== 'text') {
        if (charsLeft > 0) this.#target.receive(delta)
        continue
      }
      const { text } = delta
      sequence += text.slice(Math.max(0, charsLeft))
      if (charsLeft > 0) this.#target.receive(charsLeft >= text.length ? delta : cutDelta(delta, charsLeft))
      charsLeft -= text.length
    }
    this.#held = []
    this.#reply.stopAt(sequence.slice(0, length))
  }
}

function charsOf(delta: Content | undefined): number {
  return delta?.kind === 'text' ? delta.text.length : 0
}

/** The beginning of a delta, with the log probabilities of its tokens. */
function cutDelta(delta: Text, chars: number): Text {
  const text = delta.text.slice(0, chars)
  if (delta.logprobs === null) return { ...delta, text }
  let coveredChars = 0
  const logprobs = delta.logprobs.filter(({ token }) => {
    coveredChars += token.length
    return coveredChars <= chars
  })
  return { ...delta, text, logprobs }
}

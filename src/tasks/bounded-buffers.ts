/**
 * A bound on the memory that code of libraries unfolds. The heap limit of a worker does not count buffers, so a
 * small document could fill the machine; while the work runs, the two constructors of large buffers are replaced by
 * ones that count. Task worker, bulk, which does one job at a time.
 */
import { TaskFailure } from './failure.ts'

export interface BufferLimits {
  /** For one buffer. */
  readonly singleBytes: number
  /** For all that are larger than `countedBytes`, from the beginning of the work. */
  readonly totalBytes: number
  readonly countedBytes: number
}

/** Counts buffers, and remembers that there were too many: libraries swallow what is thrown inside them. */
class BufferCount {
  readonly #limits: BufferLimits
  #bytes = 0
  exceeded = false

  constructor(limits: BufferLimits) {
    this.#limits = limits
  }

  /**
   * A buffer of `bytes`, of which `added` are new.
   * @throws RangeError as for a buffer that does not fit in memory.
   */
  take(bytes: number, added = bytes): void {
    if (bytes > this.#limits.countedBytes) this.#bytes += added
    if (bytes <= this.#limits.singleBytes && this.#bytes <= this.#limits.totalBytes) return
    this.exceeded = true
    throw new RangeError('the buffer does not fit')
  }
}

/**
 * Runs the work with counted buffers; `check` throws as soon as they were too many.
 * @throws TaskFailure `too_large`, whatever the work made of it.
 */
export async function withBoundedBuffers<Output>(
  limits: BufferLimits,
  work: (check: () => void) => Promise<Output>,
): Promise<Output> {
  const count = new BufferCount(limits)
  const check = (): void => {
    if (count.exceeded) throw new TaskFailure('too_large', 'the document unfolds to too many bytes')
  }
  const { Uint8Array: usualArray, DecompressionStream: usualStream } = globalThis
  globalThis.Uint8Array = countedArray(usualArray, count)
  globalThis.DecompressionStream = countedStream(usualStream, count)
  try {
    const output = await work(check)
    check()
    return output
  } catch (error) {
    check()
    throw error
  } finally {
    globalThis.Uint8Array = usualArray
    globalThis.DecompressionStream = usualStream
  }
}

function countedArray(usual: Uint8ArrayConstructor, count: BufferCount): Uint8ArrayConstructor {
  const counted: Uint8ArrayConstructor = new Proxy(usual, {
    construct(target, made: readonly unknown[], newTarget) {
      if (typeof made[0] === 'number') count.take(made[0])
      return Reflect.construct(target, made, newTarget === counted ? target : newTarget) as object
    },
  })
  return counted
}

function countedStream(usual: typeof DecompressionStream, count: BufferCount): typeof DecompressionStream {
  return new Proxy(usual, {
    construct(target, made: ConstructorParameters<typeof DecompressionStream>) {
      const { readable, writable } = new target(...made)
      let bytes = 0
      const counting = new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          bytes += chunk.byteLength
          count.take(bytes, chunk.byteLength)
          controller.enqueue(chunk)
        },
      })
      return { readable: readable.pipeThrough(counting), writable }
    },
  })
}

/**
 * The `--output` file: results as JSON Lines. They are written to a temporary file next to it, which is renamed when
 * all results are there, so the file is always complete.
 */
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import { CommandError } from '../command.ts'

const LINE_FEED = Buffer.from('\n')

export class ResultFile {
  readonly path: string
  readonly #draftPath: string
  readonly #handle: FileHandle
  #bytes = 0

  private constructor(path: string, draftPath: string, handle: FileHandle) {
    this.path = path
    this.#draftPath = draftPath
    this.#handle = handle
  }

  /** Opens the file at once, so that a wrong path is reported before a batch has run for hours. @throws CommandError */
  static open(path: string): Promise<ResultFile> {
    return attempt(path, async () => {
      const known = await stat(path).catch(() => null)
      if (known?.isDirectory() === true)
        throw new CommandError(`${path}: is a folder, but --output expects a file`)
      // A pipe or a device cannot be replaced.
      const draftPath = known === null || known.isFile() ? `${path}.part` : path
      return new ResultFile(path, draftPath, await open(draftPath, 'w'))
    })
  }

  /** Starts again with an empty file. @throws CommandError */
  restart(): Promise<void> {
    return attempt(this.path, async () => {
      if (this.#bytes === 0) return
      if (!this.#isBeside) {
        throw new CommandError(
          `${this.path}: the gateway became unreachable, and the results already written there cannot be undone`,
        )
      }
      await this.#handle.truncate(0)
      this.#bytes = 0
    })
  }

  /** @throws CommandError */
  add(lines: readonly Buffer[]): Promise<void> {
    return attempt(this.path, async () => {
      let rest = Buffer.concat(lines.flatMap(line => [line, LINE_FEED]))
      while (rest.length > 0) {
        const position = this.#isBeside ? this.#bytes : null
        const { bytesWritten } = await this.#handle.write(rest, 0, rest.length, position)
        this.#bytes += bytesWritten
        rest = rest.subarray(bytesWritten)
      }
    })
  }

  /** Renames the complete file. @throws CommandError */
  keep(): Promise<void> {
    return attempt(this.path, async () => {
      if (this.#isBeside) await this.#handle.sync()
      await this.#handle.close()
      if (this.#isBeside) await rename(this.#draftPath, this.path)
    })
  }

  /** Removes the temporary file. Never rejects. */
  async drop(): Promise<void> {
    await this.#handle.close().catch(() => undefined)
    if (this.#isBeside) await rm(this.#draftPath, { force: true }).catch(() => undefined)
  }

  get #isBeside(): boolean {
    return this.#draftPath !== this.path
  }
}

async function attempt<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof CommandError) throw error
    const { code = 'unknown' } = error as NodeJS.ErrnoException
    throw new CommandError(`${path}: cannot be written (${code})`, { cause: error })
  }
}

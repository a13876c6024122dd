/**
 * The `--output` file: results as JSON Lines. They are written to a temporary file next to it, which is renamed when
 * all results are there, so the file is always complete. Results for a pipe or a device are written to it directly.
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
      const existing = await stat(path).catch(() => null)
      if (existing?.isDirectory() === true)
        throw new CommandError(`${path}: is a folder, but --output expects a file`)
      // A pipe or a device cannot be replaced.
      const draftPath = existing === null || existing.isFile() ? `${path}.part` : path
      return new ResultFile(path, draftPath, await open(draftPath, 'w'))
    })
  }

  /** Starts again with an empty file. @throws CommandError */
  restart(): Promise<void> {
    return attempt(this.path, async () => {
      if (this.#bytes === 0) return
      if (!this.#hasDraft) {
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
      let remaining = Buffer.concat(lines.flatMap(line => [line, LINE_FEED]))
      while (remaining.length > 0) {
        const position = this.#hasDraft ? this.#bytes : null
        const { bytesWritten } = await this.#handle.write(remaining, 0, remaining.length, position)
        this.#bytes += bytesWritten
        remaining = remaining.subarray(bytesWritten)
      }
    })
  }

  /** Closes the complete file, and gives it its name. @throws CommandError */
  keep(): Promise<void> {
    return attempt(this.path, async () => {
      if (this.#hasDraft) await this.#handle.sync()
      await this.#handle.close()
      if (this.#hasDraft) await rename(this.#draftPath, this.path)
    })
  }

  /** Removes the temporary file. Never rejects. */
  async drop(): Promise<void> {
    await this.#handle.close().catch(() => undefined)
    if (this.#hasDraft) await rm(this.#draftPath, { force: true }).catch(() => undefined)
  }

  get #hasDraft(): boolean {
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

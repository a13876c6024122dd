/**
 * The contract of sandbox engines: where a model's code runs, and where the files of a container are stored. An engine
 * must not trust anything that a run returns. Types only.
 */

/** Code from a model. */
export interface Code {
  readonly language: 'shell' | 'python'
  readonly text: string
}

export interface EngineRun {
  /** The codes run one after the other; after one was stopped, no further one starts. */
  readonly codes: readonly Code[]
  /** Time limit for all codes together. */
  readonly timeoutMs: number
  /** Maximum bytes of stdout, and of stderr, of each code. */
  readonly outputBytes: number
}

/** The result of one piece of code. */
export interface RunOutput {
  readonly stdout: string
  readonly stderr: string
  /** Null if the code was stopped. */
  readonly exitCode: number | null
  readonly timedOut: boolean
}

/** A limit that ended a run as a whole; `failed`: the engine itself failed. */
export type LimitStop = 'time' | 'cpu' | 'memory' | 'output' | 'files' | 'failed'

export interface EngineResult {
  /** One for each piece of code that has started. */
  readonly outputs: readonly RunOutput[]
  /** The limit that ended the run; null if none did, or if an output shows that the time was up. */
  readonly stopped: LimitStop | null
  /** The loss: the changes of this run to the files, or all files; null if nothing was lost. */
  readonly lost: 'changes' | 'files' | null
}

/** A regular file of a container. */
export interface ContainerFile {
  /** Relative to the folder of the container's files, without `.` and `..`, for example `out/plot.png`. */
  readonly path: string
  readonly bytes: number
  readonly changedMs: number
}

/** The files of one container and a way to run code on them. It takes one call at a time. */
export interface EngineContainer {
  /** Rejects only with the reason of the signal. */
  run(run: EngineRun, signal: AbortSignal): Promise<EngineResult>
  list(): Promise<readonly ContainerFile[]>
  /** Null if there is no regular file at this path. */
  read(path: string): Promise<Uint8Array | null>
  /** Returns false if there is no space for the file. */
  write(path: string, content: Uint8Array): Promise<boolean>
  /** Total size of the files. */
  bytes(): number
  /** Deletes the files. */
  end(): Promise<void>
}

export interface SandboxEngine {
  /** The engine's name in the settings. */
  readonly name: string
  /** True if the engine can limit code to the domains of an allow-list. Known once `refusal` has resolved. */
  readonly supportsDomains: boolean
  /** The reason, for clients, why the engine does not work on this machine; null if it works. Called once. */
  refusal(): Promise<string | null>
  /**
   * `id` is unique, and safe as a folder name. `allowedDomains`: null if the code has no network, and always if the
   * engine does not support allow-lists.
   */
  create(id: string, allowedDomains: readonly string[] | null): Promise<EngineContainer>
  /** Deletes the files of all containers. */
  close(): Promise<void>
}

/** Limits for every run and every container. */
export interface EngineLimits {
  readonly cpuSeconds: number
  readonly memoryBytes: number
  /** Limit for all files of one container. */
  readonly fileBytes: number
  readonly files: number
}

/** The folder of a container's files, as seen by its code. */
export const DATA_FOLDER = '/mnt/data'

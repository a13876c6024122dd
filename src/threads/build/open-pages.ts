/** Pages of the admin port that are open to everybody with access to it: the reference and the guide. Main thread. */
import type { JsonSchema } from '../../api/openapi/json-schema.ts'
import { Reference, readerUrl } from '../../api/openapi/reference/reference.ts'
import type { Config } from '../../config/config.ts'
import { reachable } from '../start/ports.ts'
import { Guide } from './guide.ts'

export class OpenPages {
  readonly guide = new Guide()
  readonly #listen: Config['listen']
  readonly #port: number
  readonly #describe: () => Promise<string | null>
  /** Made when somebody asks for it. */
  #page: Reference | null = null

  /**
   * @param port the public one
   * @param describe asks a serve thread for the interface description as JSON; null: none serves
   */
  constructor(listen: Config['listen'], port: number, describe: () => Promise<string | null>) {
    this.#listen = listen
    this.#port = port
    this.#describe = describe
  }

  /** The reference for somebody who asks the admin port by this host; null: no thread serves yet. */
  async reference(host: string | undefined): Promise<Buffer | null> {
    if (this.#page === null) {
      const document = await this.#describe()
      if (document === null) return null
      this.#page ??= new Reference(JSON.parse(document) as JsonSchema)
    }
    return this.#page.page(this.#urlFor(host)).json
  }

  /** The public port by a name that the reader can reach: where the gateway listens on all, the one just used. */
  #urlFor(host: string | undefined): string {
    const { host: own, tls } = this.#listen
    const asked = host?.replace(/:\d+$/, '') ?? ''
    const fallback = reachable(own)
    const isWide = fallback !== own && asked !== ''
    const name = isWide ? asked : fallback.includes(':') ? `[${fallback}]` : fallback
    return readerUrl(`${name}:${this.#port}`, tls !== null)
  }
}

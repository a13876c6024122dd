/**
 * Asks a provider to read a document from its pages as they look: POST /ocr as Mistral has it. Of its answer only text
 * and pictures are used; what it says of failures reaches nobody. Serve threads.
 */
import { GatewayError } from '../errors.ts'
import type { Provider } from '../providers/provider.ts'
import { authHeaders } from './auth.ts'
import { TextBody } from './body.ts'
import type { Transport } from './transport.ts'

export interface OcrPage {
  readonly markdown: string
  /** Data URLs. */
  readonly images: readonly string[]
}

/**
 * The pages of a document, which is given as a data URL.
 * Rejects with the reason of the signal, or a GatewayError: `invalid_request` when the document is at fault.
 */
export type Ocr = (document: string, signal: AbortSignal) => Promise<readonly OcrPage[]>

export interface OcrParts {
  readonly client: Transport
  readonly provider: Provider
  readonly model: string
  /** Until the answer begins, and between two pieces of it. */
  readonly timeoutMs: number
}

/** Eight pictures of a few megabytes in base64, and the text of some thousand pages. */
const ANSWER_MAX_BYTES = 48 * 1024 * 1024
/** Of a document; the documented number. */
const IMAGES_MAX = 8
const IMAGE_URL = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/
/** These tell of the key, the address or the load; the document is not at fault. */
const NOT_THE_DOCUMENT: ReadonlySet<number> = new Set([401, 402, 403, 404, 405, 408, 429])

export function createOcr({ client, provider, model, timeoutMs }: OcrParts): Ocr {
  return async (document, signal) => {
    signal.throwIfAborted()
    const { status, text } = await new Promise<{ status: number; text: string }>((resolve, reject) => {
      const body = new TextBody(ANSWER_MAX_BYTES)
      let status = 0
      const leave = (): void => {
        call.abort()
        reject(signal.reason as Error)
      }
      const over = (): void => signal.removeEventListener('abort', leave)
      const call = client.start(
        {
          url: new URL(`${provider.baseUrl}/ocr`),
          headers: {
            ...provider.headers,
            'content-type': 'application/json',
            ...authHeaders(provider.auth, provider.apiKey),
          },
          body: JSON.stringify({
            model,
            document: { type: 'document_url', document_url: document },
            include_image_base64: true,
            image_limit: IMAGES_MAX,
          }),
          headersTimeoutMs: timeoutMs,
          idleTimeoutMs: timeoutMs,
        },
        {
          onHead(head) {
            status = head.status
          },
          onData: chunk => body.push(chunk),
          onEnd() {
            over()
            resolve({ status, text: body.text() })
          },
          onError(error) {
            over()
            reject(failed(provider, error))
          },
        },
      )
      signal.addEventListener('abort', leave, { once: true })
    })
    if (status >= 200 && status <= 299) return pagesIn(provider, text)
    if (status < 400 || status > 499 || NOT_THE_DOCUMENT.has(status)) {
      const cause = new Error(`the OCR provider answered with ${status}`)
      throw failed(
        provider,
        new GatewayError(status === 429 ? 'service_unavailable' : 'provider_unavailable', '', { cause }),
      )
    }
    throw new GatewayError('invalid_request', 'the OCR provider cannot read the document')
  }
}

/** With our words: those of the provider may repeat the document. */
function failed({ name }: Provider, cause: GatewayError): GatewayError {
  const code =
    cause.code === 'upstream_timeout' || cause.code === 'service_unavailable'
      ? cause.code
      : 'provider_unavailable'
  return new GatewayError(code, 'The OCR provider failed', { metadata: { provider_name: name }, cause })
}

function pagesIn(provider: Provider, text: string): OcrPage[] {
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    answer = null
  }
  const pages = field(answer, 'pages')
  if (!Array.isArray(pages))
    throw failed(provider, new GatewayError('provider_unavailable', 'The OCR provider sent no pages'))
  let room = IMAGES_MAX
  return pages.map(page => {
    const markdown = field(page, 'markdown')
    const images = imagesIn(page).slice(0, room)
    room -= images.length
    return { markdown: typeof markdown === 'string' ? markdown : '', images }
  })
}

/** Some answers have bare base64 where others have a data URL. */
function imagesIn(page: unknown): string[] {
  const images = field(page, 'images')
  if (!Array.isArray(images)) return []
  return images
    .map(image => field(image, 'image_base64'))
    .filter(data => typeof data === 'string')
    .map(data => (data.startsWith('data:') ? data : `data:image/jpeg;base64,${data}`))
    .filter(url => IMAGE_URL.test(url))
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined
}

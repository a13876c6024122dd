/**
 * An OpenID provider on a real socket: it checks what the client must prove, and makes the claims that the test
 * chooses.
 */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT, UnsecuredJWT } from 'jose'
import type { Test } from 'tap'

/** How the next ID tokens differ from good ones. */
export interface TokenFaults {
  readonly claims?: JWTPayload
  /** Default: ES256, with the key that the provider publishes. */
  readonly sign?: 'none' | 'HS256' | 'RS256' | 'foreign key'
  readonly noToken?: true
}

interface Grant {
  readonly nonce: string
  readonly challenge: string
  readonly redirectUri: string
}

export const CLIENT_ID = 'gateway'
/** Has characters that form encoding changes. */
export const CLIENT_SECRET = 'client secret/4711+&'

export class OidcProvider {
  readonly #server = createServer((request, response) => {
    void this.#answer(request, response).catch(() => response.destroy())
  })
  readonly #grants = new Map<string, Grant>()
  #keys: Awaited<ReturnType<typeof generateKeyPair>>
  readonly #foreign: Awaited<ReturnType<typeof generateKeyPair>>
  readonly #rsa: Awaited<ReturnType<typeof generateKeyPair>>
  #codes = 0
  issuer = ''
  /** Of whoever signs in. */
  claims: JWTPayload = { sub: 'ann-1', roles: ['gateway-admins'] }
  faults: TokenFaults = {}
  /** Over the metadata; undefined removes a field. */
  metadata: Readonly<Record<string, unknown>> = {}
  /** The path that answers without an end; null: none does. */
  endless: string | null = null
  /** Bytes that its reader has taken. */
  endlessBytes = 0
  /** It answers with chunks of one byte. */
  isFine = false
  /** Keys that it publishes beside its own; `kid` of its own. */
  otherKeys: readonly Readonly<Record<string, unknown>>[] = []
  kid: string | undefined = 'one'
  /** Where the path of the metadata leads; null: to the metadata. */
  redirect: string | null = null
  /** Paths that were asked. */
  readonly asked: string[] = []
  /** Tokens and codes that were given out, for searches. */
  readonly secrets: string[] = []
  readonly authorizations: string[] = []

  private constructor(keys: readonly Awaited<ReturnType<typeof generateKeyPair>>[]) {
    const [own, foreign, rsa] = keys
    if (own === undefined || foreign === undefined || rsa === undefined) throw new Error('no keys')
    this.#keys = own
    this.#foreign = foreign
    this.#rsa = rsa
  }

  static async start(t: Pick<Test, 'teardown'>): Promise<OidcProvider> {
    const made = await Promise.all(['ES256', 'ES256', 'RS256'].map(alg => generateKeyPair(alg)))
    const provider = new OidcProvider(made)
    const server = provider.#server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    provider.issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    t.teardown(() => provider.close())
    return provider
  }

  /** From now on it has another key, and publishes no other. */
  async rotate(kid: string | undefined): Promise<void> {
    this.#keys = await generateKeyPair('ES256')
    this.kid = kid
  }

  /** Later sign-ins find nobody. */
  async close(): Promise<void> {
    if (!this.#server.listening) return
    this.#server.close()
    this.#server.closeAllConnections()
    await once(this.#server, 'close')
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', this.issuer)
    this.asked.push(url.pathname)
    const json = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    if (url.pathname === this.endless) {
      request.resume()
      response.writeHead(200, { 'content-type': 'application/json' })
      response.flushHeaders()
      // Below HTTP, which would make chunks of its own.
      const to = this.isFine ? response.socket : response
      const bytes = this.isFine ? Buffer.from('1\r\n \r\n'.repeat(1_000)) : Buffer.alloc(65_536, ' ')
      const more = () => {
        if (to?.destroyed === false && to.write(bytes)) setImmediate(more)
        this.endlessBytes += bytes.length
      }
      to?.on('drain', more)
      more()
      return
    }
    if (this.redirect !== null && url.pathname === '/.well-known/openid-configuration')
      return void response.writeHead(302, { location: this.redirect }).end()
    switch (url.pathname) {
      case '/.well-known/openid-configuration':
        return void json(200, {
          issuer: this.issuer,
          authorization_endpoint: `${this.issuer}/authorize`,
          token_endpoint: `${this.issuer}/token`,
          jwks_uri: `${this.issuer}/jwks`,
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['ES256', 'HS256', 'none'],
          ...this.metadata,
        })
      case '/jwks': {
        const jwk = await exportJWK(this.#keys.publicKey)
        return void json(200, { keys: [...this.otherKeys, { ...jwk, kid: this.kid, use: 'sig' }] })
      }
      case '/authorize':
        return void response.writeHead(302, { location: this.#authorize(url.searchParams) }).end()
      case '/token': {
        const chunks: Buffer[] = []
        for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
        const body = new URLSearchParams(Buffer.concat(chunks).toString())
        const fault = this.#tokenFault(request, body)
        if (fault !== null) return void json(fault === 'invalid_client' ? 401 : 400, { error: fault })
        return void json(200, await this.#tokens(body.get('code') ?? ''))
      }
      default:
        json(404, { error: 'not_found' })
    }
  }

  #authorize(asked: URLSearchParams): string {
    const get = (name: string): string => asked.get(name) ?? ''
    const code = `code-${++this.#codes}-${Math.random().toString(36).slice(2)}`
    this.secrets.push(code)
    this.authorizations.push(asked.toString())
    if (get('response_type') !== 'code' || get('client_id') !== CLIENT_ID) throw new Error('no such client')
    if (get('code_challenge_method') !== 'S256') throw new Error('PKCE is required')
    this.#grants.set(code, {
      nonce: get('nonce'),
      challenge: get('code_challenge'),
      redirectUri: get('redirect_uri'),
    })
    return `${get('redirect_uri')}?${new URLSearchParams({ code, state: get('state') })}`
  }

  #tokenFault({ headers: { authorization = '' } }: IncomingMessage, body: URLSearchParams): string | null {
    const [id = '', secret = ''] = Buffer.from(authorization.replace(/^Basic /, ''), 'base64')
      .toString()
      .split(':')
      .map(part => new URLSearchParams(`x=${part}`).get('x') ?? '')
    const isPost = body.get('client_id') === CLIENT_ID && body.get('client_secret') === CLIENT_SECRET
    if (!isPost && (id !== CLIENT_ID || secret !== CLIENT_SECRET)) return 'invalid_client'
    const grant = this.#grants.get(body.get('code') ?? '')
    const verifier = createHash('sha256')
      .update(body.get('code_verifier') ?? '')
      .digest('base64url')
    if (grant?.challenge !== verifier || grant.redirectUri !== body.get('redirect_uri'))
      return 'invalid_grant'
    return null
  }

  async #tokens(code: string): Promise<object> {
    const nonce = this.#grants.get(code)?.nonce ?? ''
    // Once.
    this.#grants.delete(code)
    const idToken = await this.#idToken(nonce)
    const tokens = { access_token: `access-${code}`, id_token: idToken }
    this.secrets.push(...Object.values(tokens))
    const { id_token: _, ...without } = tokens
    return { ...(this.faults.noToken ? without : tokens), token_type: 'Bearer', expires_in: 300 }
  }

  async #idToken(nonce: string): Promise<string> {
    const nowSeconds = Math.floor(Date.now() / 1000)
    const claims = {
      iss: this.issuer,
      aud: CLIENT_ID,
      iat: nowSeconds,
      exp: nowSeconds + 300,
      nonce,
      ...this.claims,
      ...this.faults.claims,
    }
    const { sign = 'ES256' } = this.faults
    if (sign === 'none') return new UnsecuredJWT(claims).encode()
    const alg = sign === 'foreign key' ? 'ES256' : sign
    const named = this.kid === undefined ? {} : { kid: this.kid }
    const signed = new SignJWT(claims).setProtectedHeader({ alg, ...named })
    if (sign === 'HS256') return await signed.sign(new TextEncoder().encode(CLIENT_SECRET.padEnd(32, 'x')))
    if (sign === 'RS256') return await signed.sign(this.#rsa.privateKey)
    return await signed.sign(sign === 'foreign key' ? this.#foreign.privateKey : this.#keys.privateKey)
  }
}

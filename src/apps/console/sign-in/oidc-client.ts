/**
 * The client of the OpenID provider: sends the browser there to sign in, and reads who signed in. The library is loaded
 * at the first sign-in. Main thread.
 */
import { readFile } from 'node:fs/promises'
import type { ClientAuth, Configuration, CustomFetch, IDToken } from 'openid-client'
import type { Dispatcher } from 'undici'
import { systemCode } from '../../../base/errors.ts'
import { KEY_ROLES } from '../../../callers/key-roles.ts'
import type { KeyRole } from '../../../protocol/management/keys.ts'
import { ReadTurns } from '../../../providers/upstream/read-turns.ts'
import { requestWithin } from '../../../providers/upstream/undici/request.ts'
import { undici } from '../../../providers/upstream/undici/undici.ts'

/** `console.oidc` of the configuration. */
export interface OidcSettings {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecretFile: string
  readonly roleClaim: string
  readonly roles: Readonly<Record<string, KeyRole>>
}

/** A user who has signed in. */
export interface SignedInIdentity {
  readonly issuer: string
  readonly subject: string
  readonly role: KeyRole
}

/** Values that the end of a sign-in must match. */
export interface SignInTerms {
  readonly state: string
  readonly nonce: string
  readonly verifier: string
  readonly configuration: Configuration
}

/**
 * A sign-in that was refused or failed. The message is for the user, the cause for the log; neither contains a token.
 */
export class SignInError extends Error {
  override readonly name = 'SignInError'
  readonly status: number
  readonly why: string

  constructor(status: number, why: string, message: string) {
    super(message)
    this.status = status
    this.why = why
  }
}

/** Accepted signature algorithms: none with a shared secret, and never `none`. */
const ALGORITHMS = [
  'RS256',
  'PS256',
  'ES256',
  'EdDSA',
  'Ed25519',
  'RS384',
  'PS384',
  'ES384',
  'RS512',
  'PS512',
  'ES512',
]
/** The default in OpenID Connect for providers that list no algorithm. */
const DEFAULT_ALGORITHMS = ['RS256']
const REQUEST_SECONDS = 10
/** A token with all groups of a large company has a quarter of this size. */
const REPLY_MAX_BYTES = 4 * 1024 * 1024
/** The limit of OpenID Connect. No spaces, so that issuer and subject can be separated, and no line ends. */
const SUBJECT = /^[\x21-\x7e]{1,255}$/

export class OidcClient {
  readonly #settings: OidcSettings
  readonly #redirectUri: string

  constructor(settings: OidcSettings, redirectUri: string) {
    this.#settings = settings
    this.#redirectUri = redirectUri
  }

  /** The provider's address for the browser. @throws SignInError */
  async begin(): Promise<{ readonly url: URL; readonly terms: SignInTerms }> {
    const library = await import('openid-client')
    const configuration = await this.#discover()
    const [state, nonce] = [library.randomState(), library.randomNonce()]
    const verifier = library.randomPKCECodeVerifier()
    const { scopes_supported: supportedScopes = [] } = configuration.serverMetadata()
    // Many providers include names and groups only if a scope requests them.
    const scopes = ['profile', this.#settings.roleClaim].filter(scope => supportedScopes.includes(scope))
    const url = library.buildAuthorizationUrl(configuration, {
      redirect_uri: this.#redirectUri,
      scope: ['openid', ...scopes].join(' '),
      state,
      nonce,
      code_challenge: await library.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    })
    return { url, terms: { state, nonce, verifier, configuration } }
  }

  /** @param query with which the browser came back @throws SignInError */
  async finish(terms: SignInTerms, query: string): Promise<SignedInIdentity> {
    const { authorizationCodeGrant } = await import('openid-client')
    const { configuration, state, nonce, verifier } = terms
    let token: IDToken | undefined
    try {
      const answer = await authorizationCodeGrant(configuration, new URL(query, this.#redirectUri), {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: verifier,
        idTokenExpected: true,
      })
      token = answer.claims()
    } catch (error) {
      throw refusalOf(error)
    }
    const { clientId, roleClaim } = this.#settings
    if (token === undefined) throw failedCheck('id_token')
    // The library checks it only if the token has several audiences.
    if (token['azp'] !== undefined && token['azp'] !== clientId) throw failedCheck('azp')
    if (!SUBJECT.test(token.sub)) throw failedCheck('sub')
    const role = roleOf(this.#settings, token)
    if (role === null) {
      throw new SignInError(
        403,
        'no role',
        `You are signed in at the provider, but your account has no role here. Ask the gateway's operator to give you one: console.oidc.roles names the values of “${roleClaim}” that have a role.`,
      )
    }
    return { issuer: token.iss, subject: token.sub, role }
  }

  async #discover(): Promise<Configuration> {
    const library = await import('openid-client')
    const { issuer, clientId } = this.#settings
    const server = new URL(issuer)
    const secret = await this.#secret()
    const authentication: ClientAuth = (provider, ...others) => {
      const { token_endpoint_auth_methods_supported: methods } = provider
      const method = methods?.includes('client_secret_post')
        ? library.ClientSecretPost
        : library.ClientSecretBasic
      method(secret)(provider, ...others)
    }
    // The settings allow plain HTTP only on this machine.
    const execute = server.protocol === 'http:' ? [library.allowInsecureRequests] : []
    const { supportsPKCE: _, ...metadata } = await library
      .discovery(server, clientId, undefined, authentication, {
        timeout: REQUEST_SECONDS,
        execute,
        [library.customFetch]: boundedFetch,
      })
      .then(provider => provider.serverMetadata())
      .catch((error: LibraryError) => {
        if (error.code === 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED') throw mismatch()
        throw unreachable(systemCode(error) ?? error.code ?? 'unreachable')
      })
    if (new URL(metadata.issuer).href !== server.href) throw mismatch()
    const { authorization_endpoint: authorizationUrl = '' } = metadata
    // The page sends the browser there.
    if (!URL.canParse(authorizationUrl) || new URL(authorizationUrl).protocol !== server.protocol)
      throw unreachable('authorization_endpoint')
    const supported = metadata.id_token_signing_alg_values_supported ?? DEFAULT_ALGORITHMS
    const algorithms = supported.filter(algorithm => ALGORITHMS.includes(algorithm))
    if (algorithms.length === 0) throw unreachable('id_token_signing_alg_values_supported')
    const configuration = new library.Configuration(
      {
        ...metadata,
        id_token_signing_alg_values_supported: algorithms,
      },
      clientId,
      undefined,
      authentication,
    )
    configuration.timeout = REQUEST_SECONDS
    configuration[library.customFetch] = boundedFetch
    // The standard does not require a signature for a token received over TLS, so checking it must be enabled.
    for (const change of [...execute, library.enableNonRepudiationChecks]) change(configuration)
    return configuration
  }

  async #secret(): Promise<string> {
    const { clientSecretFile } = this.#settings
    const text = await readFile(clientSecretFile, 'utf8').catch(() => '')
    const secret = text.trim()
    if (secret !== '') return secret
    throw new SignInError(
      503,
      'clientSecretFile',
      'The gateway cannot read its secret for the provider (console.oidc.clientSecretFile). Contact its operator.',
    )
  }
}

/**
 * Reads a whole reply within limits: `fetch` would read an endless one into memory, and take seconds for chunks of one
 * byte. The signal has the deadline.
 * @throws TypeError like `fetch`, so that it counts as no reply
 */
const boundedFetch: CustomFetch = async (address, { method, headers, body, signal }) => {
  const url = new URL(address)
  const client = new (undici().Client)(url.origin, NO_TIMEOUTS)
  try {
    const request = {
      path: `${url.pathname}${url.search}`,
      method: method as Dispatcher.HttpMethod,
      headers: { ...Object.fromEntries(new Headers(headers)), 'accept-encoding': 'identity' },
      body: body == null ? null : String(body),
    }
    const reply = await requestWithin(client, request, new ReadTurns(), signal ?? null)
    const parts: Buffer[] = []
    let bytes = 0
    for await (const part of reply.body) {
      bytes += part.length
      if (bytes > REPLY_MAX_BYTES) throw new Error('The reply of the sign-in provider is too large')
      parts.push(part)
    }
    const { statusCode: status, headers: replyHeaders } = reply
    const keptHeaders = KEPT_HEADERS.flatMap((name): [string, string][] =>
      typeof replyHeaders[name] === 'string' ? [[name, replyHeaders[name]]] : [],
    )
    return new Response(BODILESS_STATUSES.has(status) ? null : Buffer.concat(parts), {
      status,
      headers: keptHeaders,
    })
  } catch (cause) {
    signal?.throwIfAborted()
    throw new TypeError('The sign-in provider sent no reply', { cause })
  } finally {
    client.destroy().catch(() => undefined)
  }
}

/** NODE_TLS_REJECT_UNAUTHORIZED has no effect. */
const NO_TIMEOUTS = {
  allowH2: false,
  headersTimeout: 0,
  bodyTimeout: 0,
  connect: { rejectUnauthorized: true, timeout: 0 },
} as const
/** Headers that the library reads. */
const KEPT_HEADERS = ['content-type', 'www-authenticate'] as const
const BODILESS_STATUSES: ReadonlySet<number> = new Set([204, 205, 304])

/** The highest role that the token's values give. Pure. */
function roleOf({ roleClaim, roles }: OidcSettings, token: IDToken): KeyRole | null {
  // Users who may change the address in their profile could enter that of an admin.
  if (roleClaim === 'email' && token['email_verified'] !== true) return null
  const value = valueAt(token, roleClaim)
  const matchingRoles = (Array.isArray(value) ? value : [value]).flatMap(item =>
    typeof item === 'string' && Object.hasOwn(roles, item) ? [roles[item]] : [],
  )
  return KEY_ROLES.findLast(role => matchingRoles.includes(role)) ?? null
}

/** The field with exactly this name, or the nested one that its dots lead to. */
function valueAt(token: object, name: string): unknown {
  if (Object.hasOwn(token, name)) return Reflect.get(token, name)
  return name
    .split('.')
    .reduce<unknown>(
      (value, part) =>
        value !== null && typeof value === 'object' && Object.hasOwn(value, part)
          ? Reflect.get(value, part)
          : undefined,
      token,
    )
}

function failedCheck(why: string): SignInError {
  return new SignInError(
    403,
    why,
    `The sign-in provider's response failed a check (${why}), so the sign-in was refused. Sign in again; if it happens again, contact the gateway's operator.`,
  )
}

function mismatch(): SignInError {
  return new SignInError(
    502,
    'issuer',
    "The sign-in provider's issuer does not match console.oidc.issuer. Contact the gateway's operator.",
  )
}

function unreachable(why: string): SignInError {
  return new SignInError(
    502,
    why,
    'The sign-in provider cannot be reached, or does not answer as an OpenID provider. Try again later, or use a management key.',
  )
}

/** OAuth codes and names of claims, for page and log. Other texts of the provider are never shown. */
const ERROR_CODE = /^[A-Za-z_]{1,64}$/
/** Codes of the library for a missing or malformed answer. */
const NO_ANSWER_CODES = new Set([
  'OAUTH_TIMEOUT',
  'OAUTH_ABORT',
  'OAUTH_RESPONSE_IS_NOT_CONFORM',
  'OAUTH_RESPONSE_IS_NOT_JSON',
])

/** The form of the library's errors. */
interface LibraryError {
  readonly name: string
  readonly code?: string
  /** The provider's error code. */
  readonly error?: string
  readonly cause?: { readonly cause?: { readonly claim?: unknown } }
}

function refusalOf(thrown: unknown): SignInError {
  const { name, code = '', error = '', cause } = thrown as LibraryError
  const shownCode = ERROR_CODE.test(error) ? error : 'an error'
  if (name === 'AuthorizationResponseError')
    return new SignInError(
      403,
      shownCode,
      `The sign-in provider refused the sign-in (${shownCode}). Sign in again, perhaps with another account, or contact the gateway's operator.`,
    )
  if (name === 'ResponseBodyError' && shownCode === 'invalid_grant')
    return new SignInError(
      400,
      shownCode,
      'This sign-in has already been used, or took too long. Sign in again.',
    )
  if (name === 'ResponseBodyError' || name === 'WWWAuthenticateChallengeError') {
    return new SignInError(
      502,
      shownCode,
      `The sign-in provider does not accept this gateway (${shownCode}): the gateway's id, secret or redirect address is wrong. Contact the gateway's operator.`,
    )
  }
  if (NO_ANSWER_CODES.has(code)) return unreachable(code)
  if (thrown instanceof TypeError && code === '') return unreachable(systemCode(thrown) ?? 'unreachable')
  const claim = cause?.cause?.claim
  return failedCheck(typeof claim === 'string' && ERROR_CODE.test(claim) ? claim : code || 'unknown')
}

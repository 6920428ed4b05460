from google.rpc import status_pb2 as _status_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class TranslateTextRequest(_message.Message):
    __slots__ = ("contents", "source_language_code", "target_language_code", "model", "mime_type", "options")
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    contents: _containers.RepeatedScalarFieldContainer[str]
    source_language_code: str
    target_language_code: str
    model: str
    mime_type: str
    options: TranslationOptions
    def __init__(self, contents: _Optional[_Iterable[str]] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., model: _Optional[str] = ..., mime_type: _Optional[str] = ..., options: _Optional[_Union[TranslationOptions, _Mapping]] = ...) -> None: ...

class TranslationOptions(_message.Message):
    __slots__ = ("beam_size", "length_penalty", "max_target_tokens", "min_target_tokens", "num_alternatives", "no_repeat_ngram_size", "repetition_penalty", "target_prefix", "sampling", "return_scores", "return_alignment")
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    RETURN_SCORES_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    length_penalty: float
    max_target_tokens: int
    min_target_tokens: int
    num_alternatives: int
    no_repeat_ngram_size: int
    repetition_penalty: float
    target_prefix: str
    sampling: SamplingOptions
    return_scores: bool
    return_alignment: bool
    def __init__(self, beam_size: _Optional[int] = ..., length_penalty: _Optional[float] = ..., max_target_tokens: _Optional[int] = ..., min_target_tokens: _Optional[int] = ..., num_alternatives: _Optional[int] = ..., no_repeat_ngram_size: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., target_prefix: _Optional[str] = ..., sampling: _Optional[_Union[SamplingOptions, _Mapping]] = ..., return_scores: _Optional[bool] = ..., return_alignment: _Optional[bool] = ...) -> None: ...

class SamplingOptions(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class TranslateTextResponse(_message.Message):
    __slots__ = ("model", "model_version", "translations", "source_language_code", "target_language_code")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_version: str
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    source_language_code: str
    target_language_code: str
    def __init__(self, model: _Optional[str] = ..., model_version: _Optional[str] = ..., translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ("translated_text", "status", "alternatives", "score", "truncated", "segments")
    TRANSLATED_TEXT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    translated_text: str
    status: _status_pb2.Status
    alternatives: _containers.RepeatedCompositeFieldContainer[Alternative]
    score: float
    truncated: bool
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, translated_text: _Optional[str] = ..., status: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., alternatives: _Optional[_Iterable[_Union[Alternative, _Mapping]]] = ..., score: _Optional[float] = ..., truncated: _Optional[bool] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class Alternative(_message.Message):
    __slots__ = ("translated_text", "score")
    TRANSLATED_TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    translated_text: str
    score: float
    def __init__(self, translated_text: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("source_span", "target_span", "score", "finish_reason")
    SOURCE_SPAN_FIELD_NUMBER: _ClassVar[int]
    TARGET_SPAN_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    source_span: Span
    target_span: Span
    score: float
    finish_reason: FinishReason
    def __init__(self, source_span: _Optional[_Union[Span, _Mapping]] = ..., target_span: _Optional[_Union[Span, _Mapping]] = ..., score: _Optional[float] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("source_language_code", "target_language_code")
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    source_language_code: str
    target_language_code: str
    def __init__(self, source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "source_language_code", "target_language_code", "precision", "license", "default_beam_size", "default_length_penalty", "max_source_tokens", "max_target_tokens", "quality_scores")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    QUALITY_SCORES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    source_language_code: str
    target_language_code: str
    precision: str
    license: str
    default_beam_size: int
    default_length_penalty: float
    max_source_tokens: int
    max_target_tokens: int
    quality_scores: _containers.RepeatedCompositeFieldContainer[QualityScore]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., precision: _Optional[str] = ..., license: _Optional[str] = ..., default_beam_size: _Optional[int] = ..., default_length_penalty: _Optional[float] = ..., max_source_tokens: _Optional[int] = ..., max_target_tokens: _Optional[int] = ..., quality_scores: _Optional[_Iterable[_Union[QualityScore, _Mapping]]] = ...) -> None: ...

class QualityScore(_message.Message):
    __slots__ = ("test_set", "metric", "value", "signature")
    TEST_SET_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    test_set: str
    metric: str
    value: float
    signature: str
    def __init__(self, test_set: _Optional[str] = ..., metric: _Optional[str] = ..., value: _Optional[float] = ..., signature: _Optional[str] = ...) -> None: ...

class StreamTranslateTextRequest(_message.Message):
    __slots__ = ("id", "content", "source_language_code", "target_language_code", "model", "mime_type", "options")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    content: str
    source_language_code: str
    target_language_code: str
    model: str
    mime_type: str
    options: TranslationOptions
    def __init__(self, id: _Optional[str] = ..., content: _Optional[str] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ..., model: _Optional[str] = ..., mime_type: _Optional[str] = ..., options: _Optional[_Union[TranslationOptions, _Mapping]] = ...) -> None: ...

class StreamTranslateTextResponse(_message.Message):
    __slots__ = ("id", "model", "model_version", "translation", "source_language_code", "target_language_code")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRANSLATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_CODE_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    model_version: str
    translation: Translation
    source_language_code: str
    target_language_code: str
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., translation: _Optional[_Union[Translation, _Mapping]] = ..., source_language_code: _Optional[str] = ..., target_language_code: _Optional[str] = ...) -> None: ...

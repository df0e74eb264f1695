def build():
    return [AutoModel.from_pretrained("a")]
